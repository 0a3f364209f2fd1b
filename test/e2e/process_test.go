package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/examples/orders/awsemulator"
	"github.com/postrider/postrider/test/internal/programs"
)

// process is one of the programs at work.
type process struct {
	t testing.TB
	*programs.Process
}

// environment of the programs.
func environment(t testing.TB, extra ...string) []string {
	return programs.Environment(t, append([]string{
		"AWS_REGION=" + awsemulator.Region, "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test",
		"ORDERS_FULFILMENT_ADDR=127.0.0.1:0",
	}, extra...)...)
}

// start starts a program. The end of the test ends it.
func start(t testing.TB, env []string, program string, args ...string) *process {
	t.Helper()
	return &process{t, programs.Start(t, env, program, args...)}
}

// run runs a program to its end, which must be a good one.
func run(t testing.TB, env []string, program string, args ...string) (stdout string) {
	t.Helper()
	code, stdout, stderr := programs.Run(t, env, program, args...)
	if code != 0 {
		t.Fatalf("%s %s: exit code %d\n%s%s", program, strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout
}

// monitorClient does not wait for a relay that is stopped.
var monitorClient = &http.Client{Timeout: 5 * time.Second}

// metric reads one of a relay's figures from its monitor; what is the metric's
// name with its labels.
func (p *process) metric(what string) (float64, error) {
	response, err := monitorClient.Get("http://" + p.Said(" http=") + "/metrics")
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), what+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	_, _ = io.Copy(io.Discard, response.Body)
	return 0, fmt.Errorf("there is no metric %s", what)
}

// holds waits until the relay has the leases of so many shards of a route.
func (p *process) holds(route string, shards int) {
	p.t.Helper()
	p.awaitMetric(fmt.Sprintf("postrider_shards_held{route=%q}", route), func(v float64) bool { return v == float64(shards) })
}

func (p *process) awaitMetric(what string, ok func(float64) bool) {
	p.t.Helper()
	await(p.t, programs.Patience, &p.Output.News, what, func() string {
		v, err := p.metric(what)
		return unless(err == nil && ok(v), "it is %v (%v)", v, err)
	})
}
