package poll_test

import (
	"testing"
	"time"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/source/poll"
)

// Messages whose numbers were given out again count as done, and were not read.
// Cleaning leaves them where they are until that is mended.
func TestCleaningLeavesNumbersGivenOutAgain(t *testing.T) {
	w := newWorld(t)
	lease := w.acquire()
	for range 5 {
		w.enqueue(w.pool, "", "before")
	}
	if _, err := w.receive(lease, 5, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	w.look(lease)
	if err := lease.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.exec(`TRUNCATE postrider.log_0 RESTART IDENTITY`)
	for range 7 {
		w.enqueue(w.pool, "", "after")
	}
	store, err := poll.New(poll.Config{Pool: w.pool})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if cleaned, err := store.Clean(t.Context(), relay.Retention{Sent: time.Nanosecond, Failed: relay.Keep}); err != nil || cleaned.Log != 0 {
			t.Errorf("%+v, %v", cleaned, err)
		}
	}
}
