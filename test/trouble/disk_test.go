package trouble

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/postrider/postrider/internal/pgtest"
)

// The disk of the database's tables is full: first an application's insert
// fails, then what the relay records.
func TestDiskFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("nothing is tried: only root can make a small file system")
		return
	}
	everyVersion(t, func(t *testing.T, version string) {
		disk := smallDisk(t)
		server := pgtest.ServerOf(t, version)
		belongTo(t, disk, server.PID())
		if err := run(server.URL("postgres"), "CREATE TABLESPACE small LOCATION '"+disk+"'", "ALTER DATABASE template1 SET TABLESPACE small"); err != nil {
			t.Fatal(err)
		}
		w := newWorld(t, server, nil)
		w.start(w.gate.URL)
		w.suffer([]trouble{{"disk full", func(w *world) func() { return w.fill(disk) }, "stands still.*No space left on device"}})
	})
}

// fill fills the disk, and the room that is left in the pages of the cursors.
func (w *world) fill(disk string) (end func()) {
	w.t.Helper()
	// A snapshot keeps dead rows, so that no page gets room again.
	ctx := context.WithoutCancel(w.t.Context())
	snapshot, err := connect(ctx, w.server.URL(database))
	w.must(err)
	_, err = snapshot.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM postrider.cursor")
	w.must(err)
	w.t.Cleanup(func() { _ = snapshot.Close(ctx) })
	junk := filepath.Join(disk, "junk")
	f, err := os.Create(junk)
	w.must(err)
	for block := make([]byte, 64<<10); err == nil; {
		if _, err = f.Write(block); err != nil && len(block) > 1 {
			block, err = block[:len(block)/2], nil
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		w.t.Fatal(err)
	}
	w.must(f.Close())
	err = run(w.server.URL(database), `DO $$ BEGIN LOOP UPDATE postrider.cursor SET seen = seen; COMMIT; END LOOP; END $$`)
	w.t.Logf("the cursors' pages are full: %v", err)
	return func() {
		w.must(os.Remove(junk))
		w.must(snapshot.Close(ctx))
	}
}

// belongTo gives the folder to the user of the process.
func belongTo(t *testing.T, dir string, pid int) {
	t.Helper()
	info, err := os.Stat("/proc/" + strconv.Itoa(pid))
	if err != nil {
		t.Fatal(err)
	}
	who := info.Sys().(*syscall.Stat_t)
	if err := os.Chown(dir, int(who.Uid), int(who.Gid)); err != nil {
		t.Fatal(err)
	}
}

// smallDisk mounts a file system of a few megabytes. It is gone after the test, and also when the test's
// process ends in another way: the shell notices that its input has.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil { // the server has to enter it
			t.Fatal(err)
		}
	}
	if err := syscall.Mount("postrider-test", dir, "tmpfs", 0, "size=40m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	janitor := exec.Command("/bin/sh", "-c", `trap '' HUP INT TERM; read -r _; umount -l "$1"`, "janitor", dir)
	janitor.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := janitor.StdinPipe()
	if err == nil {
		err = janitor.Start()
	}
	if err != nil {
		_ = syscall.Unmount(dir, syscall.MNT_DETACH)
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(in.Close(), janitor.Wait()); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}
