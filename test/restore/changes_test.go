package restore

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/postrider/postrider/test/internal/awsrig"
	"github.com/postrider/postrider/test/internal/programs"
)

// What somebody changes about the log by hand is told by the relay's log, by
// /readyz and by status, with the SQL that mends it, whether it stops the relay or
// not.
func TestChangesAreTold(t *testing.T) {
	t.Parallel()
	s := newShop(t, awsrig.New(t), database(t, server(t, "", nil), "shop"))
	s.postrider("migrate", "up")
	s.start()
	health := "http://" + s.relay.Said(" http=")
	ready := func() (code int, text string) {
		resp, err := http.Get(health + "/readyz")
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return 0, err.Error()
		}
		return resp.StatusCode, string(body)
	}
	for _, change := range []struct {
		sql, says, mend string
		code            int
	}{
		{`ALTER TABLE postrider.log_2 ALTER seq DROP DEFAULT`, "has lost its default", "ALTER TABLE", http.StatusOK},
		{`ALTER SEQUENCE postrider.log_1_seq CACHE 10`, "cache 10", "ALTER SEQUENCE", http.StatusServiceUnavailable},
	} {
		s.exec(change.sql)
		var text string
		programs.Eventually(t, "/readyz says it", nil, func() error {
			var code int
			code, text = ready()
			return programs.Unless(code == change.code && strings.Contains(text, change.says), "%d %s", code, text)
		})
		programs.Eventually(t, "the log says it", &s.relay.Output.News, func() error {
			return programs.Unless(strings.Contains(s.relay.Output.String(), change.says), "it does not")
		})
		code, out, _ := programs.Run(t, s.env, programs.Postrider, "status", "--check", "--db", s.db)
		if code != 1 || !strings.Contains(out, "WRONG: ") || !strings.Contains(out, change.says) || !strings.Contains(out, change.mend) {
			t.Errorf("status: exit code %d\n%s", code, out)
		}
		_, mend, found := strings.Cut(text, change.mend)
		mend, _, _ = strings.Cut(mend, "\n")
		if !found {
			t.Fatalf("/readyz does not say what mends it: %s", text)
		}
		s.exec(change.mend + mend)
		programs.Eventually(t, "/readyz is well", nil, func() error {
			code, text := ready()
			return programs.Unless(code == http.StatusOK && !strings.Contains(text, change.says), "%d %s", code, text)
		})
		s.healthy()
	}
	s.arrive(s.enqueue(50))
	s.stop()
}
