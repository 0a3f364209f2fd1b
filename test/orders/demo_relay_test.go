package orders

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"syscall"
	"testing"

	"github.com/postrider/postrider/test/internal/programs"
)

var relayPID = regexp.MustCompile(`data-figure="relay">process (\d+)<`)

// relay returns the process id of the demo's relay, as its page shows it, once
// it is another one than before.
func (s *shop) relay(before int) int {
	s.t.Helper()
	var pid int
	eventually(s.t, "the page shows the relay", func() error {
		response, err := http.Get(s.url + "/")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return err
		}
		found := relayPID.FindSubmatch(body)
		if found == nil {
			return errors.New("none runs")
		}
		if pid, err = strconv.Atoi(string(found[1])); err != nil || pid == before {
			return fmt.Errorf("still process %d", before)
		}
		return nil
	})
	return pid
}

// A relay that is killed comes back and goes on; one whose demo is killed ends
// by itself.
func TestDemoRelay(t *testing.T) {
	running := programs.Start(t, environment(t, "TMPDIR="+t.TempDir()), "orders", "demo", "--addr", "127.0.0.1:0")
	s := &shop{t: t, url: running.Said("  orders        ")}
	first := s.relay(0)
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.post(valid).order(t)
	second := s.relay(first)
	running.Said("after its commit")
	running.Kill()
	eventually(t, "the relay ends with its demo", func() error {
		if err := syscall.Kill(second, 0); !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("process %d is there: %v", second, err)
		}
		return nil
	})
}

// Stopped while it is taking its relay back, the demo ends well.
func TestDemoStopsWithoutItsRelay(t *testing.T) {
	running := programs.Start(t, environment(t, "TMPDIR="+t.TempDir()), "orders", "demo", "--addr", "127.0.0.1:0")
	s := &shop{t: t, url: running.Said("  orders        ")}
	if err := syscall.Kill(s.relay(0), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	running.Stop()
}
