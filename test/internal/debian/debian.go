// Package debian sees to it that tests find the programs that they need.
package debian

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// installTimeout bounds an installation.
const installTimeout = 10 * time.Minute

// Find returns what look finds. On Debian, as root, the packages that have it are
// installed where it is missing.
func Find(ctx context.Context, look func() string, packages ...string) (string, error) {
	names := strings.Join(packages, " ")
	if path := look(); path != "" {
		return path, nil
	}
	if _, err := os.Stat("/etc/debian_version"); err != nil || os.Geteuid() != 0 {
		return "", fmt.Errorf("install %[1]s (Debian: apt-get install %[1]s)", names)
	}
	if err := install(ctx, look, packages); err != nil {
		return "", err
	}
	if path := look(); path != "" {
		return path, nil
	}
	return "", errors.New("Debian's packages (" + names + ") did not bring it")
}

// install installs Debian's packages, and says so. Whatever else of this project
// installs packages has the same lock.
func install(ctx context.Context, look func() string, packages []string) error {
	ctx, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	lock, err := os.OpenFile(filepath.Join("/var/lock", "postrider-install.lock"), os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	if look() != "" {
		return nil // by somebody else meanwhile
	}
	fmt.Fprintln(os.Stderr, "missing: apt-get install "+strings.Join(packages, " "))
	var last error
	for _, args := range [][]string{
		{"-q", "update"}, // what is known already may do
		append([]string{"-q", "-y", "--no-install-recommends", "install"}, packages...),
	} {
		cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-o", "DPkg::Lock::Timeout=300"}, args...)...)
		// A daemon that the package would start is none of ours.
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
		out, err := cmd.CombinedOutput()
		if last = nil; err != nil {
			last = fmt.Errorf("apt-get %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out[max(0, len(out)-2048):]))
		}
	}
	return last
}
