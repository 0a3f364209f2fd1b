//go:build linux || darwin

package pgserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// noClusterFile tells Debian's packages, while they are installed, not to make
// and start a cluster of the system's own.
const noClusterFile = "/etc/postgresql-common/createcluster.d/postrider-install.conf"

var installing sync.Mutex

// install installs Debian's server package, as root on Debian, and says so.
func install(ctx context.Context) error {
	if _, err := os.Stat("/etc/debian_version"); err != nil || os.Geteuid() != 0 {
		return errors.New("install your system's package of the PostgreSQL server (Debian: apt-get install postgresql)")
	}
	installing.Lock()
	defer installing.Unlock()
	lock, err := lockWait(ctx, filepath.Join("/var/lock", "postrider-install.lock"))
	if err != nil {
		return err
	}
	defer lock.Close()
	if len(lookForBinaries()) > 0 {
		return nil // by somebody else while we waited
	}
	fmt.Fprintln(os.Stderr, "PostgreSQL is missing: apt-get install postgresql")
	if err := os.MkdirAll(filepath.Dir(noClusterFile), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(noClusterFile, []byte("create_main_cluster = false\n"), 0o644); err != nil {
		return err
	}
	defer os.Remove(noClusterFile)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	var last error
	for _, args := range [][]string{
		{"-q", "update"},
		{"-q", "-y", "--no-install-recommends", "install", "postgresql"},
	} {
		cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-o", "DPkg::Lock::Timeout=300"}, args...)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		out, err := cmd.CombinedOutput()
		if last = nil; err != nil {
			last = fmt.Errorf("apt-get %v: %w: %s", args, err, bytes.TrimSpace(out[max(0, len(out)-2048):]))
		}
	}
	return last
}
