package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const module = "example.com/shop"

// line is one event of a made-up run.
func line(action, pkg, name, output string) string {
	s := `{"Action":"` + action + `","Package":"` + module + pkg + `"`
	if name != "" {
		s += `,"Test":"` + name + `"`
	}
	if output != "" {
		s += `,"Output":"` + output + `\n"`
	}
	return s + "}\n"
}

func passing() string {
	return line("start", "/a", "", "") + line("run", "/a", "TestOne", "") +
		line("output", "/a", "TestOne", "=== RUN TestOne") + line("pass", "/a", "TestOne", "") + line("pass", "/a", "", "")
}

func skipping(name string) string {
	return line("start", "/b", "", "") + line("run", "/b", name, "") +
		line("output", "/b", name, "    b_test.go:7: no engine here") + line("skip", "/b", name, "") + line("pass", "/b", "", "")
}

func TestVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		in    string
		skips string
		code  int
		last  string
		has   string
	}{
		"all pass": {
			in: passing(), code: 0, last: "1 passed, 0 failed, 0 skipped", has: "ok   example.com/shop/a",
		},
		"a failure shows its output": {
			in: passing() + line("run", "/a", "TestTwo", "") + line("output", "/a", "TestTwo", "got 1, want 2") +
				line("fail", "/a", "TestTwo", "") + line("fail", "/a", "", ""),
			code: 1, last: "1 passed, 1 failed, 0 skipped", has: "got 1, want 2",
		},
		"a skip that is not listed fails the run": {
			in: passing() + skipping("TestContainer"), skips: "# nothing\n",
			code: 1, last: "1 passed, 0 failed, 1 skipped", has: "SKIPPED WITHOUT BEING LISTED: b TestContainer: no engine here",
		},
		"a skip that is listed is printed with the list's reason": {
			in: passing() + skipping("TestContainer"), skips: "b TestContainer CI has no container engine\n",
			code: 0, last: "1 passed, 0 failed, 1 skipped", has: "skipped as listed: b TestContainer: CI has no container engine",
		},
		"a listed test of another package is no excuse": {
			in: passing() + skipping("TestContainer"), skips: "a TestContainer CI has no container engine\n",
			code: 1, last: "1 passed, 0 failed, 1 skipped",
		},
		"a listed test does not cover its subtests": {
			in: passing() + skipping("TestContainer/podman"), skips: "b TestContainer reason\n",
			code: 1, last: "1 passed, 0 failed, 1 skipped",
		},
		"a listed test with dots covers its subtests": {
			in: passing() + skipping("TestContainer/podman"), skips: "b TestContainer/... reason\n",
			code: 0, last: "1 passed, 0 failed, 1 skipped",
		},
		"a line of the list without a reason is wrong": {
			in: passing(), skips: "b TestContainer\n", code: 1,
		},
		"a package that does not build fails the run": {
			in: passing() + `{"ImportPath":"example.com/shop/c","Action":"build-output","Output":"c.go:1:1: oops\n"}` + "\n" +
				`{"ImportPath":"example.com/shop/c","Action":"build-fail"}` + "\n",
			code: 1, last: "1 passed, 1 failed, 0 skipped", has: "c.go:1:1: oops",
		},
		"a package that panics fails, and so does what it cut off": {
			in: passing() + line("start", "/d", "", "") + line("run", "/d", "TestPanics", "") +
				line("output", "/d", "TestPanics", "panic: boom") + line("fail", "/d", "", ""),
			code: 1, last: "1 passed, 2 failed, 0 skipped", has: "panic: boom",
		},
		"no test at all fails the run": {
			in: line("start", "/a", "", "") + line("skip", "/a", "", ""), code: 1, last: "0 passed, 0 failed, 0 skipped",
		},
		"an empty input fails the run": {code: 1, last: "0 passed, 0 failed, 0 skipped"},
		"what the go command says is passed on": {
			in: "go: updates to go.mod needed\n" + passing(), code: 0,
			last: "1 passed, 0 failed, 0 skipped", has: "go: updates to go.mod needed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			skips := filepath.Join(t.TempDir(), "skips.txt")
			if err := os.WriteFile(skips, []byte(c.skips), 0o600); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			code, _ := newReport(&out).run(strings.NewReader(c.in), module, skips)
			if code != c.code {
				t.Errorf("exit code %d, want %d; printed:\n%s", code, c.code, &out)
			}
			if c.last != "" && !strings.HasSuffix(out.String(), "\n"+c.last+"\n") && out.String() != c.last+"\n" {
				t.Errorf("the last line is not %q:\n%s", c.last, &out)
			}
			if !strings.Contains(out.String(), c.has) {
				t.Errorf("%q is not in:\n%s", c.has, &out)
			}
		})
	}
}

// The events are those that the go command of today prints.
func TestReadsTheRealThing(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/shop\n\ngo 1.26\n",
		"a/a_test.go": `package a
import "testing"
func TestPasses(t *testing.T) {}
func TestSkips(t *testing.T)  { t.Skip("not here") }
func TestFails(t *testing.T)  { t.Run("sub", func(t *testing.T) { t.Error("wrong") }) }
`,
		"b/b_test.go": "package b\nfunc oops( {\n",
		"c/c_test.go": "package c\nimport \"testing\"\nfunc TestPanics(t *testing.T) { panic(\"boom\") }\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "test", "-json", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	stdout, err := cmd.Output()
	if err == nil {
		t.Fatal("the made-up tests passed")
	}
	var out strings.Builder
	code, err := newReport(&out).run(strings.NewReader(string(stdout)), module, "")
	if code != 1 || err != nil {
		t.Errorf("exit code %d, error %v", code, err)
	}
	for _, want := range []string{
		"--- FAIL: example.com/shop/a TestFails/sub", "wrong",
		"SKIPPED WITHOUT BEING LISTED: a TestSkips: not here",
		"FAILED: example.com/shop/c TestPanics", "panic: boom",
		"FAILED: example.com/shop/b",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, &out)
		}
	}
}

// What failed before the tests is in the closing line and in the exit code.
func TestCountsWhatFailedBefore(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	r.unfit = []string{"make vet"}
	code, err := r.run(strings.NewReader(passing()), module, "")
	if code != 1 || err != nil {
		t.Errorf("exit code %d, error %v", code, err)
	}
	if !strings.HasSuffix(out.String(), "FAILED: make vet\n1 passed, 1 failed, 0 skipped\n") {
		t.Errorf("printed:\n%s", &out)
	}
}
