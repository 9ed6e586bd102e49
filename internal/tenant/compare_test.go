package tenant_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// proofs are the packages that hold credentials and proofs, with the number of places in each where one is verified: the two forms
// of app identity, and the cursors of lists.
var proofs = map[string]int{".": 2, "../jwt": 0, "../wire": 1, "../server": 0, "../audit": 0}

// TestS30SecretsAreComparedInConstantTime reads the source of these packages: a value that holds a credential or a proof is
// compared with hmac.Equal, or found by its hash, and never with == or bytes.Equal, whose time tells how much was right.
func TestS30SecretsAreComparedInConstantTime(t *testing.T) {
	t.Parallel()
	for dir, want := range proofs {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", dir, len(files), err)
		}
		fset, equal := token.NewFileSet(), 0
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(fset, f, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.BinaryExpr:
					if (n.Op == token.EQL || n.Op == token.NEQ) && isSecret(n.X) != isSecret(n.Y) && !isConstant(n.X) && !isConstant(n.Y) {
						t.Errorf("%s: a secret is compared with %s", fset.Position(n.Pos()), n.Op)
					}
				case *ast.SelectorExpr:
					switch x, _ := n.X.(*ast.Ident); {
					case x == nil:
					case x.Name+"."+n.Sel.Name == "hmac.Equal":
						equal++
					case leaky[x.Name+"."+n.Sel.Name]:
						t.Errorf("%s: %s.%s", fset.Position(n.Pos()), x.Name, n.Sel.Name)
					}
				}
				return true
			})
		}
		if equal != want {
			t.Errorf("%s: hmac.Equal stands in %d places, want %d", dir, equal, want)
		}
	}
}

// leaky are comparisons that end at the first difference.
var leaky = map[string]bool{
	"bytes.Equal": true, "bytes.Compare": true, "reflect.DeepEqual": true, "strings.Compare": true, "slices.Equal": true,
}

func isSecret(e ast.Expr) bool {
	name := ""
	switch e := e.(type) {
	case *ast.Ident:
		name = e.Name
	case *ast.SelectorExpr:
		name = e.Sel.Name
	}
	name = strings.ToLower(name)
	for _, word := range []string{"secret", "mac", "signature", "sig", "hash", "identity"} {
		if name == word || strings.HasSuffix(name, "secret") {
			return true
		}
	}
	return false
}

// isConstant: whether there is a secret at all may be asked.
func isConstant(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return true
	case *ast.Ident:
		return e.Name == "nil" || e.Name == "fresh" // which of two keys of ours is in hand, in EnsureAdminKey
	}
	return false
}
