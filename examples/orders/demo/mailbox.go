package demo

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/examples/orders/mailcatcher"
	"github.com/postrider/postrider/examples/orders/page"
)

// shownMails is how many mails the page shows.
const shownMails = 3

// mailbox is where all mails of the shop arrive. It is safe for concurrent use.
type mailbox struct {
	mu      sync.Mutex
	byOrder map[string]int // how many mails
	total   int
	latest  []page.Letter
	file    *os.File // where they are kept; nil: nowhere
}

// kept is a mail as the file has it, one on each line.
type kept struct {
	Order   string    `json:"order"`
	To      string    `json:"to"`
	Subject string    `json:"subject"`
	Text    string    `json:"text"`
	At      time.Time `json:"at"`
}

// openMailbox makes a mailbox that keeps its mails in the file, from which it
// also reads those of earlier runs. Without a file it forgets them.
func openMailbox(path string) (*mailbox, error) {
	b := &mailbox{byOrder: make(map[string]int)}
	if path == "" {
		return b, nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the mailbox: %w", err)
	}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var k kept
		// A line that was cut off is of a mail that nobody was told is taken.
		if json.Unmarshal(lines.Bytes(), &k) == nil {
			b.add(k)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("read the mailbox: %w", err), file.Close())
	}
	b.file = file
	return b, nil
}

// hook takes a mail in before its sender is told that it is taken.
func (b *mailbox) hook(stage mailcatcher.Stage, m mailcatcher.Mail) *mailcatcher.Refusal {
	if stage != mailcatcher.AtAnswer {
		return nil
	}
	k := kept{Order: orderOf(m), To: strings.Join(m.To, ", "), Subject: m.Subject, Text: m.Text, At: m.Received}
	if len(m.Names) == 1 && m.Names[0].Name != "" {
		k.To = m.Names[0].Name
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.file != nil {
		line, err := json.Marshal(k)
		if err == nil {
			_, err = b.file.Write(append(line, '\n'))
		}
		if err != nil {
			return &mailcatcher.Refusal{Code: 452, Message: "the mailbox cannot be written"}
		}
	}
	b.add(k)
	return nil
}

// orderOf reads the order's id from the mail's.
func orderOf(m mailcatcher.Mail) string {
	id, _, _ := strings.Cut(m.MessageID, "@")
	return strings.TrimPrefix(id, "order-")
}

func (b *mailbox) add(k kept) {
	b.byOrder[k.Order]++
	b.total++
	b.latest = append(b.latest, page.Letter{To: k.To, Subject: k.Subject, Text: strings.TrimSpace(k.Text), At: k.At})
	if len(b.latest) > shownMails {
		b.latest = append(b.latest[:0], b.latest[1:]...)
	}
}

func (b *mailbox) look() *page.Mail {
	b.mu.Lock()
	defer b.mu.Unlock()
	newest := slices.Clone(b.latest)
	slices.Reverse(newest)
	return &page.Mail{Total: b.total, Latest: newest}
}

// count is how many mails have come, and how many of each order.
func (b *mailbox) count(orders []string) (total int, of []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range orders {
		of = append(of, b.byOrder[id])
	}
	return b.total, of
}

func (b *mailbox) close() error {
	if b.file == nil {
		return nil
	}
	return b.file.Close()
}
