package tenant_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// TestS30SecretsAreComparedInConstantTime reads the source of this package: a value that holds a credential or a proof is
// compared with hmac.Equal, or found by its hash, and never with == or bytes.Equal, whose time tells how much was right.
func TestS30SecretsAreComparedInConstantTime(t *testing.T) {
	t.Parallel()
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	fset, equal := token.NewFileSet(), 0
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(fset, f.Name(), nil, 0)
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
				x, _ := n.X.(*ast.Ident)
				switch {
				case x == nil:
				case x.Name == "bytes" || x.Name == "reflect":
					t.Errorf("%s: %s.%s", fset.Position(n.Pos()), x.Name, n.Sel.Name)
				case x.Name == "hmac" && n.Sel.Name == "Equal":
					equal++
				}
			}
			return true
		})
	}
	if equal != 2 {
		t.Errorf("hmac.Equal stands in %d places, the two forms of app identity are 2", equal)
	}
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
