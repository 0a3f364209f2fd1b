package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/postrider/postrider/examples/orders/web"
)

// What browsers get besides the page itself. Libraries and fonts of others are
// in assets/vendor, unchanged, each with its licence beside it; README.md there
// says where they come from.
//
//go:embed assets
var assetFiles embed.FS

// assets are the files by name. assetVersion is a part of their paths that
// changes with the contents of any of them, so that browsers may keep them for
// ever.
var assets, assetVersion = loadAssets()

func loadAssets() (map[string][]byte, string) {
	files, sum := map[string][]byte{}, sha256.New()
	err := fs.WalkDir(assetFiles, "assets", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := assetFiles.ReadFile(name)
		files[strings.TrimPrefix(name, "assets/")] = content
		sum.Write([]byte(name))
		sum.Write(content)
		return err
	})
	if err != nil {
		panic(err) // they are in this program
	}
	return files, hex.EncodeToString(sum.Sum(nil)[:6])
}

// asset is the path of an asset.
func asset(name string) (string, error) {
	if _, ok := assets[name]; !ok {
		return "", fmt.Errorf("page: there is no asset %q", name)
	}
	return "/assets/" + assetVersion + "/" + name, nil
}

func serveAsset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	content, ok := assets[name]
	if !ok || r.PathValue("version") != assetVersion {
		web.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	if path.Ext(name) == ".woff2" {
		w.Header().Set("Content-Type", "font/woff2")
	}
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
}

// licence is that of one library.
type licence struct{ ID, Name, Text string }

// licences are those of what the page is made with.
func licences() []licence {
	var all []licence
	for _, l := range []licence{
		{ID: "htmx", Name: "htmx"},
		{ID: "htmx-sse", Name: "htmx, extension for server-sent events"},
		{ID: "inter", Name: "Inter, typeface"},
	} {
		l.Text = string(assets["vendor/"+l.ID+".LICENSE"])
		all = append(all, l)
	}
	return all
}
