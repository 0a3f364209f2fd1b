package relay_test

import (
	"testing"

	"go.uber.org/goleak"
)

// A relay leaves no goroutine behind, whatever a test did to it.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
