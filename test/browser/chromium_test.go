package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/postrider/postrider/test/internal/debian"
)

// chromiumVariable names the browser to use, for machines where it is not found.
const chromiumVariable = "POSTRIDER_TEST_CHROMIUM"

// findChromium returns the path of a Chromium or Chrome. On Debian, as root, it
// is installed where it is missing.
func findChromium(ctx context.Context) (string, error) {
	if path := os.Getenv(chromiumVariable); path != "" {
		return exec.LookPath(path)
	}
	path, err := debian.Find(ctx, lookForChromium, "chromium", "fonts-liberation")
	if err != nil {
		return "", fmt.Errorf("no browser: %w, or name one in %s", err, chromiumVariable)
	}
	return path, nil
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
