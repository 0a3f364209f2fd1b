// Package browser tests the demo's page in a real browser: what a person sees
// there, and that it is what the databases say.
package browser

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/chromedp/chromedp"
	_ "modernc.org/sqlite"

	"github.com/postrider/postrider/examples/orders/awsemulator"
	"github.com/postrider/postrider/examples/orders/search"
)

// patience bounds every wait for something that must happen. It promises no
// speed.
const patience = time.Minute

// What all tests share: the program and the browser, made when the first test
// needs them.
var (
	dir     string
	program = sync.OnceValues(func() (string, error) {
		path := filepath.Join(dir, "orders")
		out, err := exec.Command("go", "build", "-buildvcs=false", "-o", path, "github.com/postrider/postrider/examples/orders").CombinedOutput()
		if err != nil {
			err = fmt.Errorf("build: %w\n%s", err, out)
		}
		return path, err
	})
	allocator = sync.OnceValues(func() (context.Context, error) {
		path, err := findChromium(context.Background())
		if err != nil {
			return nil, err
		}
		// What is given up with the tests' last process needs no goodbye.
		ctx, cancel := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
			chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
			chromedp.UserDataDir(filepath.Join(dir, "profile")),
			chromedp.Flag("disable-background-networking", true),
			chromedp.Flag("disable-component-update", true),
			chromedp.Flag("disable-sync", true),
			chromedp.Flag("disable-dev-shm-usage", true),
			chromedp.CombinedOutput(io.Discard),
		)...)
		closers = append(closers, cancel)
		browser, cancel := chromedp.NewContext(ctx)
		closers = append(closers, func() { _ = chromedp.Cancel(browser); cancel() })
		return browser, chromedp.Do(browser)
	})
	closers []func()
)

// theBrowser starts the browser that all tabs are in.
func theBrowser(t testing.TB) context.Context {
	t.Helper()
	ctx, err := allocator()
	if err != nil {
		t.Fatal(err)
	}
	return ctx
}

func TestMain(m *testing.M) {
	var err error
	if dir, err = os.MkdirTemp("", "postrider-browser-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	for i := len(closers) - 1; i >= 0; i-- {
		closers[i]()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// shop is a running demo.
type shop struct {
	t    testing.TB
	url  string
	aws  string // the emulator
	kept string // folder
	cmd  *exec.Cmd
	done chan struct{}
}

// startShop starts a demo, which is stopped with the test.
func startShop(t testing.TB, args ...string) *shop {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	keep := t.TempDir()
	s := &shop{t: t, kept: filepath.Join(keep, "sqlite"), done: make(chan struct{})}
	s.cmd = exec.Command(path, append([]string{"demo", "--addr", "127.0.0.1:0", "--keep", keep}, args...)...)
	s.cmd.Env = environment()
	reader, writer := io.Pipe()
	s.cmd.Stdout, s.cmd.Stderr = writer, writer
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = s.cmd.Wait()
		_ = writer.Close()
		close(s.done)
	}()
	lines := make(chan string, 100_000)
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(lines)
		for scanner := bufio.NewScanner(reader); scanner.Scan(); {
			fmt.Fprintf(t.Output(), "orders: %s\n", scanner.Text())
			lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.done
		<-read
	})
	await := func(mark string) string {
		t.Helper()
		timeout := time.After(patience)
		for {
			select {
			case line, ok := <-lines:
				if !ok {
					t.Fatalf("the demo ended and never said %q", mark)
				}
				if _, after, found := strings.Cut(line, mark); found {
					word, _, _ := strings.Cut(after, " ")
					return strings.TrimSuffix(word, ",")
				}
			case <-timeout:
				t.Fatalf("the demo never said %q", mark)
			}
		}
	}
	s.url = await("  page          ")
	s.aws = await("  AWS           emulated at ")
	await("Ctrl-C")
	return s
}

// environment is the test's own without what the demo would take for settings.
func environment() []string {
	var env []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "AWS_") && !strings.HasPrefix(variable, "ORDERS_") &&
			!strings.HasPrefix(variable, "POSTRIDER_") && !strings.HasPrefix(variable, "DATABASE_URL=") && !strings.HasPrefix(variable, "KUMO_") {
			env = append(env, variable)
		}
	}
	return env
}

// stop stops the demo as ctrl-C does.
func (s *shop) stop() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGINT); err != nil {
		s.t.Fatal(err)
	}
	select {
	case <-s.done:
	case <-time.After(patience):
		s.t.Fatal("the demo does not stop")
	}
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		s.t.Errorf("exit code %d", code)
	}
}

// stored are the numbers that the databases have, read without the demo's help.
type stored struct{ orders, fulfilments, mails, counted int }

func (s *shop) stored() (n stored) {
	s.t.Helper()
	n.orders = s.query("orders", `SELECT count(*) FROM orders`)
	n.counted = s.query("analytics", `SELECT coalesce(sum(orders), 0) FROM analytics_minutes`)
	mails, err := os.ReadFile(filepath.Join(s.kept, "mails.jsonl"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	n.mails = strings.Count(string(mails), "\n")
	client := dynamodb.NewFromConfig(awsemulator.Config(s.aws))
	pages := dynamodb.NewScanPaginator(client, &dynamodb.ScanInput{TableName: aws.String("fulfillments")})
	for pages.HasMorePages() {
		page, err := pages.NextPage(s.t.Context())
		if err != nil {
			s.t.Fatal(err)
		}
		n.fulfilments += len(page.Items)
	}
	return n
}

func (s *shop) query(name, query string) (n int) {
	s.t.Helper()
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: filepath.Join(s.kept, name+".db")}).EscapedPath()+"?mode=ro&_pragma=busy_timeout(10000)")
	if err != nil {
		s.t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow(query).Scan(&n); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// settle waits until the page says that nothing is lost, of so many orders, and
// compares its numbers with the databases'. Then it stops the demo, to open the
// search index, which has one user at a time.
func (s *shop) settle(b *tab, orders int) {
	s.t.Helper()
	b.await(fmt.Sprintf(`document.querySelector('[data-part="verdict"]').dataset.state === "settled" && %s`, figureIs("placed", number(orders))))
	want := stored{orders, orders, orders, orders}
	if got := s.stored(); got != want {
		s.t.Errorf("stored %+v, want %+v", got, want)
	}
	for _, name := range []string{"placed", "total-fulfilment", "total-notification", "total-analytics", "total-search"} {
		if got := b.figure(name); got != number(orders) {
			s.t.Errorf("the page says %s %s, want %d", name, got, orders)
		}
	}
	if verdict := b.figure("verdict"); !strings.HasPrefix(verdict, "Nothing is lost") {
		s.t.Errorf("the page says: %s", verdict)
	}
	b.leave()
	s.stop()
	index, err := search.Open(search.Config{Path: filepath.Join(s.kept, "search.bleve")})
	if err != nil {
		s.t.Fatal(err)
	}
	defer index.Close()
	if n, err := index.Count(); err != nil || int(n) != orders {
		s.t.Errorf("%d orders are indexed, want %d: %v", n, orders, err)
	}
}

// number writes 1000 as 1,000, as the page does.
func number(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return number(n/1000) + fmt.Sprintf(",%03d", n%1000)
}
