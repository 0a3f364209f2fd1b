package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// tick is the unit of processor time in /proc (USER_HZ), the same on all systems
// that Go runs on.
const tick = 10 * time.Millisecond

// treeTime is the processor time of a process and all that it has started: those
// that run, and those that it has waited for. Only Linux tells; 0 elsewhere.
func treeTime(root int) time.Duration {
	if root == 0 {
		return 0
	}
	// A process that ends in between would count twice or not at all.
	running, own := tree(root)
	for range 100 {
		again, ownAgain := tree(root)
		same := maps.EqualFunc(running, again, func(time.Duration, time.Duration) bool { return true })
		if running, own = again, ownAgain; same {
			break
		}
		time.Sleep(time.Millisecond)
	}
	for _, t := range running {
		own += t
	}
	return own
}

// tree is the processor time of each child that runs, and that of the process
// and the children that it has waited for.
func tree(root int) (running map[int]time.Duration, own time.Duration) {
	running = map[int]time.Duration{}
	paths, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has just ended
		}
		// pid (name) state ppid …; the name may hold anything. utime, stime,
		// cutime and cstime are the 14th to 17th.
		fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
		if len(fields) < 15 {
			continue
		}
		number := func(i int) time.Duration {
			n, _ := strconv.ParseInt(string(fields[i]), 10, 64)
			return time.Duration(n) * tick
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		switch {
		case pid == root:
			own = number(11) + number(12) + number(13) + number(14)
		case string(fields[1]) == strconv.Itoa(root):
			running[pid] = number(11) + number(12)
		}
	}
	return running, own
}
