package archtest

import (
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Packages reads the imports of every Go file below a folder that is no test,
// whatever its build tags. Folders that the go command ignores are left out.
func Packages(top string) ([]Package, error) {
	byPath := map[string]*Package{}
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != top && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || name == "node_modules" || name == "vendor") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, filepath.Dir(path))
		if err != nil {
			return err
		}
		if rel = filepath.ToSlash(rel); rel == "." {
			rel = ""
		}
		p := byPath[rel]
		if p == nil {
			p = &Package{Path: rel}
			byPath[rel] = p
		}
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if !slices.Contains(p.Imports, imported) {
				p.Imports = append(p.Imports, imported)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var packages []Package
	for _, p := range byPath {
		packages = append(packages, *p)
	}
	slices.SortFunc(packages, func(a, b Package) int { return strings.Compare(a.Path, b.Path) })
	return packages, nil
}

// Required lists the modules that a go.mod requires, indirect ones too.
func Required(goMod string) ([]string, error) {
	out, err := exec.Command("go", "mod", "edit", "-json", goMod).Output()
	if err != nil {
		return nil, fmt.Errorf("go mod edit -json %s: %w", goMod, err)
	}
	var parsed struct{ Require []struct{ Path string } }
	if err := json.Unmarshal(out, &parsed); err != nil {
		return nil, err
	}
	var modules []string
	for _, r := range parsed.Require {
		modules = append(modules, r.Path)
	}
	return modules, nil
}
