package pooler

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

// installTimeout bounds the installation of a package.
const installTimeout = 10 * time.Minute

// find returns what look finds. On Debian, as root, the package that has it is
// installed where it is missing.
func find(ctx context.Context, pack string, look func() string) (string, error) {
	if path := look(); path != "" {
		return path, nil
	}
	if _, err := os.Stat("/etc/debian_version"); err != nil || os.Geteuid() != 0 {
		return "", fmt.Errorf("install %[1]s (Debian: apt-get install %[1]s)", pack)
	}
	if err := install(ctx, pack, look); err != nil {
		return "", err
	}
	if path := look(); path != "" {
		return path, nil
	}
	return "", errors.New("Debian's package " + pack + " did not bring it")
}

// install installs Debian's package, and says so. Whatever else of this project
// installs packages has the same lock.
func install(ctx context.Context, pack string, look func() string) error {
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
	fmt.Fprintln(os.Stderr, pack+" is missing: apt-get install "+pack)
	var last error
	for _, args := range [][]string{
		{"-q", "update"}, // what is known already may do
		{"-q", "-y", "--no-install-recommends", "install", pack},
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
