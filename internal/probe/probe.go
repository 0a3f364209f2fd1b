// Package probe asks a process on this machine how it is. Images without a
// shell have nothing else to do it with.
package probe

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 4096

// Get asks for path at the address that a server listens on, host:port; a host
// that stands for every address of the machine is asked at the loopback one.
// The error says what the server answered unless that was 200. The context
// bounds the wait.
func Get(ctx context.Context, address, path string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("address %q: %w: write it as host:port", address, err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	url := "http://" + net.JoinHostPort(host, port) + path
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	// Never through a proxy that the environment names, and no redirects.
	client := http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", url, answer.Status, strings.TrimSpace(string(body)))
	}
	return nil
}
