package e2e

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider/test/internal/programs"
)

// await waits until missing returns nothing, asking again after each change,
// and now and then without one. It fails the test with what is still missing.
func await(t testing.TB, within time.Duration, changed *programs.News, what string, missing func() string) {
	t.Helper()
	programs.Within(t, within, what, changed, func() error {
		if still := missing(); still != "" {
			return errors.New(still)
		}
		return nil
	})
}

// unless is a condition for await: the text, or nothing once ok.
func unless(ok bool, format string, args ...any) string {
	if ok {
		return ""
	}
	return fmt.Sprintf(format, args...)
}
