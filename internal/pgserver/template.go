//go:build linux || darwin

package pgserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Names inside a server's folder and beside it.
const (
	dataName       = "data"     // the cluster
	passwordName   = "password" // of the superuser
	lockName       = "lock"     // held by the process that uses the folder
	readyName      = "ready"    // in a template: says what a whole one looks like
	serverPrefix   = "postrider-pgserver-"
	templatePrefix = "postrider-pgtemplate-"
)

// makeCluster makes a new cluster in dir, as a copy of the machine's template of
// this version and user (0.1 s), or by initdb (4 s) if fresh. It returns the
// template that it used.
//
// Templates lie in the folder for temporary files, made by whoever comes first
// while the others wait at a lock. One that is not whole, or is from before the
// machine's last start (initdb does not sync), is made again.
func makeCluster(ctx context.Context, bin binaries, user account, dir string, fresh bool) (template string, err error) {
	base, err := tempBase(user)
	if err != nil {
		return "", err
	}
	if fresh {
		return "", freshCluster(ctx, bin, user, base, dir)
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(bin.version + bin.dir))
	template = filepath.Join(base, fmt.Sprintf("%s%d-%s-%x", templatePrefix, user.uid, bin.major(), h.Sum64()))
	if info, err := os.Lstat(template); err == nil && (!info.IsDir() || !user.owns(info)) {
		return "", freshCluster(ctx, bin, user, base, dir) // somebody else's: not to be trusted
	}
	lock, err := lockWait(ctx, template+".lock")
	if err != nil {
		return "", fmt.Errorf("wait for the template cluster: %w", err)
	}
	defer lock.Close()
	if !whole(template) {
		if err := makeTemplate(ctx, bin, user, template); err != nil {
			return "", err
		}
	}
	return template, copyCluster(ctx, template, dir)
}

// freshCluster makes a cluster without a template, elsewhere first because the
// server's user may not be able to enter dir.
func freshCluster(ctx context.Context, bin binaries, user account, base, dir string) (err error) {
	made, err := os.MkdirTemp(base, serverPrefix)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(made)) }()
	if err := user.own(made); err != nil {
		return err
	}
	if err := initCluster(ctx, bin, user, made); err != nil {
		return err
	}
	return copyCluster(ctx, made, dir)
}

// copyCluster copies a cluster so that an interrupted copy is not taken for one.
func copyCluster(ctx context.Context, from, to string) error {
	part := filepath.Join(to, dataName+".part")
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	if err := copyTree(ctx, filepath.Join(from, passwordName), filepath.Join(to, passwordName)); err != nil {
		return err
	}
	if err := copyTree(ctx, filepath.Join(from, dataName), part); err != nil {
		return err
	}
	return os.Rename(part, filepath.Join(to, dataName))
}

func makeTemplate(ctx context.Context, bin binaries, user account, template string) error {
	if err := os.RemoveAll(template); err != nil {
		return err
	}
	if err := os.Mkdir(template, 0o700); err != nil {
		return err
	}
	if err := user.own(template); err != nil {
		return err
	}
	if err := initCluster(ctx, bin, user, template); err != nil {
		return errors.Join(err, os.RemoveAll(template))
	}
	seen, err := measure(template)
	if err != nil {
		return err
	}
	text, err := json.Marshal(seen)
	if err != nil {
		return err
	}
	part := filepath.Join(template, readyName+".part")
	if err := os.WriteFile(part, text, 0o600); err != nil {
		return err
	}
	return os.Rename(part, filepath.Join(template, readyName))
}

// discardTemplate removes a template from which no server started.
func discardTemplate(ctx context.Context, template string) error {
	lock, err := lockWait(ctx, template+".lock")
	if err != nil {
		return err
	}
	defer lock.Close()
	return os.RemoveAll(template)
}

// measured is what tells a whole template from a damaged one.
type measured struct {
	Boot  string `json:"boot"` // the start of the machine in which it was made
	Files int    `json:"files"`
	Bytes int64  `json:"bytes"`
}

func whole(template string) bool {
	text, err := os.ReadFile(filepath.Join(template, readyName))
	if err != nil {
		return false
	}
	var want measured
	if json.Unmarshal(text, &want) != nil {
		return false
	}
	got, err := measure(template)
	return err == nil && got == want
}

func measure(template string) (measured, error) {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	m := measured{Boot: strings.TrimSpace(string(boot))}
	for _, name := range []string{passwordName, dataName} {
		err := filepath.WalkDir(filepath.Join(template, name), func(_ string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			info, err := d.Info()
			if err == nil {
				m.Files++
				m.Bytes += info.Size()
			}
			return err
		})
		if err != nil {
			return measured{}, err
		}
	}
	return m, nil
}

// initCluster makes a cluster in dir/data with a random password in dir/password.
func initCluster(ctx context.Context, bin binaries, user account, dir string) error {
	password := filepath.Join(dir, passwordName)
	if err := os.WriteFile(password, []byte(newPassword()+"\n"), 0o600); err != nil {
		return err
	}
	data := filepath.Join(dir, dataName)
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	for _, path := range []string{password, data} {
		if err := user.own(path); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin.path("initdb"))
	cmd.Args = append(cmd.Args, "-D", data, "--pwfile="+password,
		"--no-sync", "--no-instructions", "--username="+superuser, "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C")
	cmd.SysProcAttr = user.attr()
	cmd.Dir, cmd.Env = "/", cleanEnv()
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("initdb: %w:\n%s", err, bytes.TrimSpace(out.Bytes()))
	}
	return nil
}

// copyTree copies with owners and modes, sharing blocks where the file system can.
func copyTree(ctx context.Context, from, to string) error {
	args := []string{"-a", "--reflink=auto", from, to}
	if runtime.GOOS != "linux" {
		args = []string{"-Rp", from, to}
	} else if out, _ := exec.CommandContext(ctx, "cp", "--version").Output(); !bytes.Contains(out, []byte("GNU")) {
		args = []string{"-a", from, to} // BusyBox
	}
	if out, err := exec.CommandContext(ctx, "cp", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("copy the template cluster: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// sweep removes the folders of servers whose process died without anybody to
// clear up after it. It errs on the side of leaving one.
func sweep(base string, user account) {
	dirs, _ := filepath.Glob(filepath.Join(base, serverPrefix+"*"))
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || !user.owns(info) || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		lock, err := lockNow(filepath.Join(dir, lockName))
		if err != nil {
			continue // in use
		}
		if postmasterOf(filepath.Join(dir, dataName)) == 0 {
			_ = os.RemoveAll(dir)
		}
		_ = lock.Close()
	}
}
