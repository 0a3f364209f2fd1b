package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/postrider/postrider/bench/contender"
)

// runOneCommand makes this program one contender's process. It talks in lines:
//
//	in:  a job as JSON, "go", perhaps "mark" (processor time counts from here), "stop"
//	out: "ready", "count N" while messages come, "result" with an outcome as JSON
const runOneCommand = "run-one"

// job is what one process does.
type job struct {
	Contender string
	Options   contender.Options
	Messages  int // numbers of messages are below it
}

// outcome is what one process measured.
type outcome struct {
	contender.Tally
	CPU      time.Duration // of the process, from go or mark to the end
	Peak     int64         // bytes resident at most, since the process began
	Resident int64         // bytes resident at the end
	Error    string
}

// progressEvery is how often a process says at most how many messages it has.
const progressEvery = 2 * time.Millisecond

func runOne(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	in := bufio.NewScanner(stdin)
	var j job
	if !in.Scan() {
		return fmt.Errorf("no job: %w", io.ErrUnexpectedEOF)
	}
	if err := json.Unmarshal(in.Bytes(), &j); err != nil {
		return fmt.Errorf("the job: %w", err)
	}
	entry, err := contender.Find(j.Contender)
	if err != nil {
		return err
	}
	sink := contender.NewSink(j.Options.Delay, j.Messages)
	if j.Options.Times {
		sink.NoteTimes()
	}
	work, err := entry.Contender.Open(ctx, j.Options, sink)
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, "ready")
	if !in.Scan() {
		return nil
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	var before atomic.Int64
	before.Store(int64(processorTime()))
	go func() { // ends with the process
		for in.Scan() && in.Text() == "mark" {
			before.Store(int64(processorTime()))
		}
		stop()
	}()
	sink.Begin()
	finished := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() { tell(stdout, sink, finished) })
	err = work(running)
	close(finished)
	telling.Wait()

	out := outcome{Tally: sink.Tally(), CPU: processorTime() - time.Duration(before.Load()), Peak: resident("VmHWM:"), Resident: resident("VmRSS:")}
	if err != nil {
		out.Error = err.Error()
	}
	text, err := json.Marshal(out)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "result %s\n", text)
	return err
}

// tell says how many messages came, whenever that changed. It sleeps while
// nothing comes, since the process is measured.
func tell(stdout io.Writer, sink *contender.Sink, finished <-chan struct{}) {
	for {
		select {
		case <-sink.Came():
			fmt.Fprintln(stdout, "count", sink.Count())
			time.Sleep(progressEvery)
		case <-finished:
			return
		}
	}
}

// processorTime is what this process has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it cannot fail for oneself
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// resident is a line of /proc/self/status in bytes: VmRSS is what this process has
// resident, VmHWM the most that it had. 0 where the system does not tell.
func resident(name string) int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name); ok {
			kib, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return kib << 10
		}
	}
	return 0
}
