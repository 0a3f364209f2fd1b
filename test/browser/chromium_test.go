package browser

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// chromiumVariable names the browser to use, for machines where it is not found.
const chromiumVariable = "POSTRIDER_TEST_CHROMIUM"

// installTimeout bounds the installation of the browser.
const installTimeout = 10 * time.Minute

// findChromium returns the path of a Chromium or Chrome. On Debian, as root, it
// is installed where it is missing.
func findChromium(ctx context.Context) (string, error) {
	if path := os.Getenv(chromiumVariable); path != "" {
		return exec.LookPath(path)
	}
	if path := lookForChromium(); path != "" {
		return path, nil
	}
	if _, err := os.Stat("/etc/debian_version"); err != nil || os.Geteuid() != 0 {
		return "", fmt.Errorf("no browser: install Chromium (Debian: apt-get install chromium fonts-liberation), or name one in %s", chromiumVariable)
	}
	if err := installChromium(ctx); err != nil {
		return "", err
	}
	if path := lookForChromium(); path != "" {
		return path, nil
	}
	return "", errors.New("Debian's package of Chromium brought no program")
}

func lookForChromium() string {
	for _, name := range []string{
		"chromium", "chromium-browser", "google-chrome", "google-chrome-stable",
		"/Applications/Google Chrome.app/Contents/MacOS/Google Chrome", "/Applications/Chromium.app/Contents/MacOS/Chromium",
	} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// installChromium installs Debian's package, and says so. Whatever else of this
// project installs packages has the same lock.
func installChromium(ctx context.Context) error {
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
	if lookForChromium() != "" {
		return nil // by somebody else meanwhile
	}
	fmt.Fprintln(os.Stderr, "Chromium is missing: apt-get install chromium fonts-liberation")
	var last error
	for _, args := range [][]string{
		{"-q", "update"}, // what is known already may do
		{"-q", "-y", "--no-install-recommends", "install", "chromium", "fonts-liberation"},
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
