//go:build linux || darwin

package pgserver

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
)

// account is the user that server programs run as. PostgreSQL refuses to run as
// root, so root hands over to somebody else; everybody else runs it as himself.
type account struct {
	name     string
	uid, gid uint32
	switches bool // whether it is not the user of this process
}

// unprivileged returns this process's user, or for root the first user of the
// machine that fits.
func unprivileged() (account, error) {
	if uid := os.Geteuid(); uid != 0 {
		return account{name: strconv.Itoa(uid), uid: uint32(uid), gid: uint32(os.Getegid())}, nil
	}
	for _, name := range []string{"postgres", "_postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errU := strconv.ParseUint(u.Uid, 10, 32)
		gid, errG := strconv.ParseUint(u.Gid, 10, 32)
		if errU == nil && errG == nil && uid != 0 {
			return account{name, uint32(uid), uint32(gid), true}, nil
		}
	}
	return account{}, fmt.Errorf("PostgreSQL does not run as root, and there is neither a user postgres nor nobody")
}

// reach makes a folder one that a command can name although the account may not
// enter those above it (as under root's home): the command gets the folder opened,
// and a name for it that leads there directly. Only Linux has such names.
func (a account) reach(cmd *exec.Cmd, dir string) (name string, done func(), err error) {
	closed := a.blockedAt(dir)
	if closed == "" {
		return dir, func() {}, nil
	}
	if runtime.GOOS != "linux" {
		return "", nil, fmt.Errorf("user %s, under which the server runs, may not enter %s", a.name, closed)
	}
	f, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	return fmt.Sprintf("/proc/self/fd/%d", 2+len(cmd.ExtraFiles)), func() { _ = f.Close() }, nil
}

// attr makes a child run as the account.
func (a account) attr() *syscall.SysProcAttr {
	if !a.switches {
		return &syscall.SysProcAttr{}
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: a.uid, Gid: a.gid}}
}

// own gives a file or folder to the account.
func (a account) own(path string) error {
	if !a.switches {
		return nil
	}
	return os.Chown(path, int(a.uid), int(a.gid))
}

// owns reports whether a file belongs to the account or to this process's user,
// so that nobody else can have prepared it.
func (a account) owns(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (stat.Uid == a.uid || stat.Uid == uint32(os.Geteuid()))
}

// blockedAt returns the first folder on the way to path, path included, that the
// account may not enter, or nothing. Only root needs to ask.
func (a account) blockedAt(path string) string {
	if !a.switches {
		return ""
	}
	if parent := filepath.Dir(path); parent != path {
		if closed := a.blockedAt(parent); closed != "" {
			return closed
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		return path
	}
	stat := info.Sys().(*syscall.Stat_t)
	bit := os.FileMode(0o001)
	switch {
	case stat.Uid == a.uid:
		bit = 0o100
	case stat.Gid == a.gid:
		bit = 0o010
	}
	if info.Mode()&bit == 0 {
		return path
	}
	return ""
}

// tempBase returns the folder for temporary files that the account can reach.
func tempBase(a account) (string, error) {
	bases := []string{os.TempDir(), "/tmp"}
	for _, base := range bases {
		if resolved, err := filepath.EvalSymlinks(base); err == nil && a.blockedAt(resolved) == "" {
			return resolved, nil
		}
	}
	return "", fmt.Errorf("user %s, under which the server runs, may enter none of the folders for temporary files %q", a.name, bases)
}
