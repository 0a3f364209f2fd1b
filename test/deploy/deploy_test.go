// Package deploy checks the files that deploy the reference system against the
// programs that they run. No container engine is needed.
package deploy

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

type service struct {
	Image       string
	Build       struct{ Dockerfile, Target string }
	Command     []string
	Environment map[string]string
	Ports       []string
	DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
	Healthcheck struct {
		Test    []string
		Disable bool
	}
}

func compose(t *testing.T) map[string]service {
	t.Helper()
	text, err := os.ReadFile("../../deploy/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]service
		Volumes  map[string]any
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Services) < 10 {
		t.Fatalf("only %d services", len(file.Services))
	}
	return file.Services
}

func TestComposeIsWhole(t *testing.T) {
	services := compose(t)
	stages := dockerfile(t)
	waitsFor := map[string]bool{}
	for name, s := range services {
		for on, how := range s.DependsOn {
			if _, ok := services[on]; !ok {
				t.Errorf("%s depends on %s, which is no service", name, on)
			}
			if how.Condition == "service_completed_successfully" {
				waitsFor[on] = true
			}
		}
	}
	for name, s := range services {
		if (s.Image == "") == (s.Build.Dockerfile == "") {
			t.Errorf("%s needs either an image or a build", name)
		}
		if s.Image != "" && !strings.Contains(s.Image, ":") {
			t.Errorf("%s: image %s has no version", name, s.Image)
		}
		if s.Build.Dockerfile != "" && !slices.Contains(stages, s.Build.Target) {
			t.Errorf("%s builds %q of the stages %v", name, s.Build.Target, stages)
		}
		if ends := waitsFor[name]; s.Healthcheck.Disable != ends || !ends && len(s.Healthcheck.Test) == 0 {
			t.Errorf("%s: every service that goes on has a health check, and those that end have none", name)
		}
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s: port %s is open beyond this machine", name, port)
			}
		}
	}
}

// Every command, flag and variable that the file uses is one that the programs
// know.
func TestComposeUsesWhatThereIs(t *testing.T) {
	bin := build(t)
	others := []string{"PGPASSWORD", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
	for name, s := range compose(t) {
		if s.Build.Target == "" {
			continue
		}
		runs := [][]string{s.Command}
		if !s.Healthcheck.Disable {
			test := s.Healthcheck.Test
			if want := "/" + s.Build.Target; test[0] != "CMD" || test[1] != want {
				t.Errorf("%s: its image has only %s to check its health with, not %v", name, want, test)
			}
			runs = append(runs, test[2:])
		}
		for i, command := range runs {
			words := slices.Clone(command)
			for j, w := range words {
				if strings.HasPrefix(w, "-") {
					words = words[:j]
					break
				}
			}
			out, err := exec.CommandContext(t.Context(), filepath.Join(bin, s.Build.Target), append(words, "--help")...).CombinedOutput()
			if err != nil {
				t.Errorf("%s: %v: %v\n%s", name, command, err, out)
				continue
			}
			help := regexp.MustCompile(`\s+`).ReplaceAllString(string(out), " ")
			for _, w := range command {
				if strings.HasPrefix(w, "-") && !strings.Contains(help, w+"=") {
					t.Errorf("%s: %v: there is no flag %s", name, command, w)
				}
			}
			if i > 0 {
				continue
			}
			for variable := range s.Environment {
				flag := "--" + strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(variable, "POSTRIDER_")), "_", "-") + "="
				known := slices.Contains(others, variable) || strings.Contains(help, "$"+variable) ||
					strings.HasPrefix(variable, "POSTRIDER_") && strings.Contains(help, flag)
				if !known {
					t.Errorf("%s: %v knows no variable %s", name, command, variable)
				}
			}
		}
	}
}

func build(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../../cmd/postrider", "../../examples/orders").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// dockerfile returns the names of the final stages, each of which starts from
// nothing and runs without root.
func dockerfile(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	var stages []string
	parts := regexp.MustCompile(`(?m)^FROM (\S+) AS (\S+)$`).FindAllStringSubmatchIndex(string(text), -1)
	for i, p := range parts {
		end := len(text)
		if i+1 < len(parts) {
			end = parts[i+1][0]
		}
		from, name, body := string(text[p[2]:p[3]]), string(text[p[4]:p[5]]), string(text[p[0]:end])
		if name == "build" {
			for _, path := range regexp.MustCompile(`\./(cmd|examples)/\S+`).FindAllString(body, -1) {
				if _, err := os.Stat(filepath.Join("../..", path)); err != nil {
					t.Errorf("the build: %v", err)
				}
			}
			continue
		}
		stages = append(stages, name)
		volume, workdir := regexp.MustCompile(`(?m)^VOLUME (\S+)$`).FindStringSubmatch(body), regexp.MustCompile(`(?m)^WORKDIR (\S+)$`).FindStringSubmatch(body)
		if volume != nil && (workdir == nil || workdir[1] != volume[1] || !strings.Contains(body, "--chown=65532:65532 "+volume[1]+" "+volume[1])) {
			t.Errorf("stage %s: the files that its program writes unless told otherwise do not get into the volume %s", name, volume[1])
		}
		if user := regexp.MustCompile(`(?m)^USER (\d+):\d+$`).FindStringSubmatch(body); from != "scratch" || user == nil || user[1] == "0" {
			t.Errorf("stage %s starts from %s as user %v: want scratch, and a number that is not root's", name, from, user)
		}
	}
	return stages
}

// The policies allow the operations that the code asks for, and no others.
func TestPoliciesAllowWhatTheCodeUses(t *testing.T) {
	for _, test := range []struct {
		policy string
		uses   []string
		not    string // an operation of the same files that belongs to another role
	}{
		{"relay.json", []string{"broker/snsbroker/*.go"}, ""},
		{"relay-sqs.json", []string{"broker/sqsbroker/publisher.go", "broker/sqsbroker/queue.go"}, ""},
		{"consumer.json", []string{"broker/sqsbroker/*.go", "examples/orders/fulfilment/fulfilment.go"}, "sqs:SendMessage"},
	} {
		want := operations(t, test.uses)
		delete(want, test.not)
		delete(want, "sts:GetCallerIdentity") // needs no permission
		text, err := os.ReadFile("../../deploy/iam/" + test.policy)
		if err != nil {
			t.Fatal(err)
		}
		var policy struct {
			Version   string
			Statement []struct {
				Effect, Resource string
				Action           []string
			}
		}
		if err := json.Unmarshal(text, &policy); err != nil {
			t.Fatalf("%s: %v", test.policy, err)
		}
		got := map[string]bool{}
		for _, s := range policy.Statement {
			if s.Effect != "Allow" || !strings.HasPrefix(s.Resource, "arn:aws:") || strings.Contains(s.Resource, "*") {
				t.Errorf("%s: %s on %q", test.policy, s.Effect, s.Resource)
			}
			for _, a := range s.Action {
				got[a] = true
				if !want[a] {
					t.Errorf("%s allows %s, which nothing asks for", test.policy, a)
				}
			}
		}
		for a := range want {
			if !got[a] {
				t.Errorf("%s does not allow %s", test.policy, a)
			}
		}
	}
}

// operations are the actions behind the requests that the files make. A batch
// needs the permission of its single operation.
func operations(t *testing.T, patterns []string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, pattern := range patterns {
		files, err := filepath.Glob("../../" + pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no files, %v", pattern, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`\b(sqs|sns|sts|dynamodb)\.(\w+)Input\b`).FindAllStringSubmatch(string(text), -1) {
				found[m[1]+":"+strings.TrimSuffix(m[2], "Batch")] = true
			}
		}
	}
	if len(found) == 0 {
		t.Fatalf("%v make no requests", patterns)
	}
	return found
}
