package docs

import (
	"context"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/sqlitestore"
	"github.com/postrider/postrider/telemetry"
)

// Every command that the documents show runs, on a store where it has something
// to do.
func TestDocumentedCommandsRun(t *testing.T) {
	dir := t.TempDir()
	binary, path := filepath.Join(dir, "postrider"), filepath.Join(dir, "shop.db")
	if out, err := osexec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", binary, "github.com/postrider/postrider/cmd/postrider").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	aShop(t, path)
	ran := 0
	for _, file := range []string{"../../README.md", "../../docs/operating.md"} {
		for _, block := range blocksOf(t, file, "sh") {
			for line := range strings.Lines(block) {
				line, _, _ = strings.Cut(line, " #")
				if !strings.HasPrefix(line, "postrider ") || strings.Contains(line, "--db") || strings.HasPrefix(line, "postrider health") {
					continue
				}
				// 2/4711 stands for a message that is there.
				line = strings.ReplaceAll(strings.TrimSpace(line), "2/4711", "0/1")
				cmd := osexec.CommandContext(t.Context(), "sh", "-c", line)
				cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "POSTRIDER_DATABASE=sqlite:"+path)
				out, err := cmd.CombinedOutput()
				ran++
				if err != nil && !strings.Contains(string(out), "nobody is there to ask") && !strings.Contains(string(out), "no message fits") && !strings.Contains(line, "--check") {
					t.Errorf("%s: %s: %v\n%s", file, line, err, out)
				}
			}
		}
	}
	if ran < 20 {
		t.Errorf("only %d commands were run", ran)
	}
}

// aShop makes a store with a route orders and a few messages of key 4711 in
// different states on it.
func aShop(t *testing.T, path string) {
	t.Helper()
	ctx := context.Background()
	store, err := sqlitestore.Open(ctx, path, sqlitestore.Options{Shards: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var msgs []outbox.Message
	for range 8 {
		msgs = append(msgs, outbox.Message{Topic: "billing.paid", Key: "4711"})
	}
	tx, err := store.DB().BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := outbox.NewWriter(sqlitestore.SQL{}).Enqueue(ctx, tx, msgs...); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	lease, err := store.Acquire(ctx, relay.Claim{Route: "orders", Owner: "o", TTL: time.Minute, Topics: []string{"**"}, Hold: true})
	if err != nil {
		t.Fatal(err)
	}
	got, err := lease.Receive(ctx, 8)
	if err != nil || len(got) < 8 {
		t.Fatalf("%d received, %v", len(got), err)
	}
	var outcomes []relay.Outcome
	for i, d := range got {
		state := []outbox.State{outbox.StateSent, outbox.StateFailed}[i%2]
		outcomes = append(outcomes, relay.Outcome{Delivery: d, State: state, Attempts: 1, Error: "no"})
	}
	if err := lease.Settle(ctx, outcomes); err != nil {
		t.Fatal(err)
	}
	if err := lease.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// The metrics that the documents name are there, with the labels that they use.
func TestDocumentedMetricsExist(t *testing.T) {
	there := map[string]string{}
	descs := make(chan *prometheus.Desc, 1000)
	for _, c := range []prometheus.Collector{
		telemetry.NewCollector(func() relay.Stats { return relay.Stats{} }), telemetry.NewTimings(),
		telemetry.NewStoreCollector(telemetry.StoreConfig{Status: func(context.Context, admin.StatusOptions) (admin.Status, error) { return admin.Status{}, nil }}),
	} {
		c.Describe(descs)
	}
	close(descs)
	form := regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)
	for d := range descs {
		m := form.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("not understood: %s", d)
		}
		there[m[1]] = m[2]
	}
	named := 0
	for _, file := range []string{"../../README.md", "../../docs/operating.md", "../../telemetry/prometheus.go", "../../telemetry/store.go", "../../telemetry/timings.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`postrider_[a-z_]*[a-z]\b`).FindAllString(string(text), -1) {
			if name == "postrider_in_flight_messages" || strings.HasPrefix(name, "postrider_log") {
				continue
			}
			named++
			if _, ok := there[name]; !ok {
				t.Errorf("%s names %s, which is no metric", file, name)
			}
		}
		for _, m := range regexp.MustCompile(`by \(([a-z, ]+)\) \((postrider_[a-z_]+)`).FindAllStringSubmatch(string(text), -1) {
			for label := range strings.SplitSeq(m[1], ", ") {
				if !slices.Contains(strings.Split(there[m[2]], ","), label) {
					t.Errorf("%s: %s has no label %s, it has %s", file, m[2], label, there[m[2]])
				}
			}
		}
	}
	if named < 40 {
		t.Errorf("only %d names were found", named)
	}
}
