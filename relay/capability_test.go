package relay

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A store, lease or publisher may be behind a wrapper, such as one that measures:
// no code here may ask one by itself whether it can do something more.
func TestCapabilitiesAreLookedForBehindWrappers(t *testing.T) {
	files := token.NewFileSet()
	interfaces := map[string]bool{}
	var ours []*ast.File
	for _, dir := range []string{".", "../outbox"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
				continue
			}
			f, err := parser.ParseFile(files, filepath.Join(dir, e.Name()), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			if dir == "." {
				ours = append(ours, f)
			}
			for _, decl := range f.Decls {
				for _, name := range interfacesOf(decl) {
					interfaces[name] = true
				}
			}
		}
	}
	for _, known := range []string{"Sharer", "Cleaner", "Recaller", "DeathCounter", "Resolver"} {
		if !interfaces[known] {
			t.Errorf("%s was not found", known)
		}
	}
	asked := func(x ast.Expr) {
		name := ""
		switch x := x.(type) {
		case *ast.Ident:
			name = x.Name
		case *ast.SelectorExpr:
			name = x.Sel.Name
		}
		if interfaces[name] {
			t.Errorf("%s: asserts %s: capability[%s] finds it behind a wrapper too", files.Position(x.Pos()), name, name)
		}
	}
	for _, f := range ours {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeAssertExpr:
				asked(n.Type)
			case *ast.TypeSwitchStmt:
				for _, clause := range n.Body.List {
					for _, x := range clause.(*ast.CaseClause).List {
						asked(x)
					}
				}
			}
			return true
		})
	}
}

func interfacesOf(decl ast.Decl) (names []string) {
	d, ok := decl.(*ast.GenDecl)
	if !ok {
		return nil
	}
	for _, spec := range d.Specs {
		if s, ok := spec.(*ast.TypeSpec); ok {
			if _, ok := s.Type.(*ast.InterfaceType); ok {
				names = append(names, s.Name.Name)
			}
		}
	}
	return names
}
