package cli_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/postrider/postrider/examples/orders/awsemulator"
	"github.com/postrider/postrider/examples/orders/cloud"
)

// A topic by its name and one by its ARN, each with the queue behind it.
func TestTopics(t *testing.T) {
	s := newShop(t, "sqlite:"+filepath.Join(t.TempDir(), "shop.db"))
	topics := sns.NewFromConfig(awsemulator.Config(s.proxy.URL))
	named, other := s.queue+"-named", s.queue+"-orders"
	var arn string
	for _, name := range []string{named, other} {
		var err error
		if arn, err = cloud.EnsureFanOut(t.Context(), topics, s.sqs, name, s.queue); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	write(t, dir, "postrider.yaml", `
database: `+s.db+`
http: off
lease: 3s
routes:
  - {name: named, topics: [orders], to: "sns://`+named+`"}
  - {name: arn, topics: [orders], to: "sns://`+strings.TrimSuffix(arn, other)+s.queue+`-{topic}", encoding: base64}
`)
	w := s.world()
	w.dir = dir
	p := w.start(t, "relay")
	if line := p.awaitLog("postrider relay starts"); !strings.Contains(line, "aws_endpoint="+s.proxy.URL) {
		t.Errorf("the first line lacks the endpoint: %s", line)
	}
	s.enqueue(3)
	got := s.receive(6)
	for i, encoded := range []string{"eyJuIjowfQ==", "eyJuIjoxfQ==", "eyJuIjoyfQ=="} {
		if plain := `{"n":` + string(rune('0'+i)) + `}`; got[plain] != 1 || got[encoded] != 1 {
			t.Errorf("%s came %d times raw and %d times in base64, want once each", plain, got[plain], got[encoded])
		}
	}
	p.signal(syscall.SIGTERM)
	p.wantExit(0)
}
