package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/postrider/postrider/examples/orders/order"
	"github.com/postrider/postrider/examples/orders/page"
)

const (
	// placers is how many clients place orders at the same time.
	placers = 8
	// customers is among how many customers the orders are spread.
	customers      = 25
	requestTimeout = 30 * time.Second
)

// request is what a client asks for.
type request struct {
	CustomerID  string `json:"customerId"`
	AmountCents int64  `json:"amountCents"`
}

// numbered is the i-th request of many, counted from 1.
func numbered(i int) request {
	return request{CustomerID: fmt.Sprintf("c%d", 1+i%customers), AmountCents: int64(100 + (i*977)%50_000)}
}

// place places n orders over HTTP, as clients of the shop do, and returns their
// ids in no order.
func place(ctx context.Context, url string, n int, what func(i int) request) ([]string, error) {
	client := &http.Client{Timeout: requestTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: placers}}
	defer client.CloseIdleConnections()
	group, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	var mu sync.Mutex
	var ids []string
	for range min(placers, n) {
		group.Go(func() error {
			for ctx.Err() == nil {
				i := int(next.Add(1))
				if i > n {
					return nil
				}
				id, err := placeOne(ctx, client, url, what(i))
				if err != nil {
					return fmt.Errorf("place order %d of %d: %w", i, n, err)
				}
				mu.Lock()
				ids = append(ids, id)
				mu.Unlock()
			}
			return ctx.Err()
		})
	}
	return ids, group.Wait()
}

func placeOne(ctx context.Context, client *http.Client, url string, what request) (id string, err error) {
	body, err := json.Marshal(what)
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/orders", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	answer, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return "", err
	}
	switch response.StatusCode {
	case http.StatusCreated:
		var placed order.Order
		err := json.Unmarshal(answer, &placed)
		return placed.ID, err
	case http.StatusBadRequest:
		var problem struct{ Detail string }
		if err := json.Unmarshal(answer, &problem); err == nil {
			return "", &page.Refusal{Detail: problem.Detail}
		}
	}
	return "", fmt.Errorf("the order service answered %s: %s", response.Status, answer)
}

// placeForPage is page.Config.Place. Of many orders, each is another customer's.
func (s *shop) placeForPage(ctx context.Context, n int, customer string, amountCents int64) (id string, err error) {
	what := numbered
	if n == 1 {
		what = func(int) request { return request{CustomerID: customer, AmountCents: amountCents} }
	}
	ids, err := place(ctx, s.url(), n, what)
	if err != nil {
		return "", err
	}
	return ids[len(ids)-1], nil
}
