package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"
)

// tick is the unit of processor time in /proc (USER_HZ), the same on all systems
// that Go runs on.
const tick = 10 * time.Millisecond

// treeTime is the processor time of a process and all that it has started: those
// that run, and those that it has waited for. 0 where the system does not tell
// (it is Linux that does).
func treeTime(root int) time.Duration {
	if root == 0 {
		return 0
	}
	// A process that ends in between would count twice or not at all.
	var total time.Duration
	for range 100 {
		before := children(root)
		_, total = times(root)
		for _, pid := range before {
			own, _ := times(pid)
			total += own
		}
		if slices.Equal(before, children(root)) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return total
}

// children are the processes that a process has started and not waited for.
func children(root int) (pids []int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", root))
	if err != nil {
		return nil
	}
	for field := range bytes.FieldsSeq(text) {
		pid, _ := strconv.Atoi(string(field))
		pids = append(pids, pid)
	}
	return pids
}

// times is the processor time of a process: its own, and with that of the
// children that it has waited for.
func times(pid int) (own, all time.Duration) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0 // it has just ended
	}
	// pid (name) state ppid …; the name may hold anything. utime, stime, cutime
	// and cstime are the 14th to 17th.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 15 {
		return 0, 0
	}
	number := func(i int) time.Duration {
		n, _ := strconv.ParseInt(string(fields[i]), 10, 64)
		return time.Duration(n) * tick
	}
	own = number(11) + number(12)
	return own, own + number(13) + number(14)
}
