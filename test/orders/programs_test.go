package orders

import (
	"os"
	"testing"

	"github.com/postrider/postrider/examples/orders/awsemulator"
	"github.com/postrider/postrider/test/internal/programs"
)

func TestMain(m *testing.M) { os.Exit(programs.Main(m, programs.Orders, programs.Postrider)) }

// environment is that of the programs.
func environment(t testing.TB, extra ...string) []string {
	return programs.Environment(t, append([]string{"ORDERS_FULFILMENT_ADDR=127.0.0.1:0"}, extra...)...)
}

// environment is the one that reaches the test's emulated AWS.
func (a *awsRig) environment() []string {
	return environment(a.t,
		"AWS_ENDPOINT_URL="+a.server.Endpoint, "AWS_REGION="+awsemulator.Region,
		"AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test",
		"ORDERS_QUEUE="+a.queue, "ORDERS_TABLE="+a.table)
}

// outcome is how a program ended.
type outcome struct {
	code           int
	stdout, stderr string
}

// run runs a program to its end.
func run(t testing.TB, env []string, program string, args ...string) (o outcome) {
	t.Helper()
	o.code, o.stdout, o.stderr = programs.Run(t, env, program, args...)
	return o
}

// must ends the test unless the program ended well.
func (o outcome) must(t testing.TB) outcome {
	t.Helper()
	if o.code != 0 {
		t.Fatalf("exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	return o
}
