package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// placers is how many clients place orders at the same time.
	placers = 8
	// customers is among how many customers the orders are spread.
	customers      = 25
	requestTimeout = 30 * time.Second
)

// place places n orders over HTTP, as clients of the shop do.
func place(ctx context.Context, url string, n int) error {
	client := &http.Client{Timeout: requestTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: placers}}
	defer client.CloseIdleConnections()
	group, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range min(placers, n) {
		group.Go(func() error {
			for ctx.Err() == nil {
				i := next.Add(1)
				if i > int64(n) {
					return nil
				}
				if err := placeOne(ctx, client, url, i); err != nil {
					return fmt.Errorf("place order %d of %d: %w", i, n, err)
				}
			}
			return ctx.Err()
		})
	}
	return group.Wait()
}

func placeOne(ctx context.Context, client *http.Client, url string, i int64) error {
	body, err := json.Marshal(map[string]any{
		"customerId":  fmt.Sprintf("c%d", 1+i%customers),
		"amountCents": 100 + (i*977)%50_000,
	})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/orders", bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	answer, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	err = errors.Join(err, response.Body.Close())
	if err == nil && response.StatusCode != http.StatusCreated {
		err = fmt.Errorf("the order service answered %s: %s", response.Status, answer)
	}
	return err
}
