package internal

import (
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestEveryPackageHasAComment(t *testing.T) {
	t.Parallel()
	documented, seen := map[string]bool{}, map[string]bool{}
	for _, f := range allSources(t) {
		if f.test && !strings.HasPrefix(f.path, "e2e/") {
			continue
		}
		seen[f.dir()] = true
		if f.ast.Doc == nil {
			continue
		}
		text := f.ast.Doc.Text()
		if strings.HasPrefix(text, "Package "+f.ast.Name.Name+" ") || strings.HasPrefix(text, "Command "+filepath.Base(f.dir())+" ") {
			documented[f.dir()] = true
		}
	}
	for dir := range seen {
		if !documented[dir] {
			t.Errorf("%s has no comment that begins with \"Package name \" or \"Command name \"", dir)
		}
	}
}

const (
	maxFileLines     = 600
	maxFunctionLines = 80
)

// longFunctions may pass the limit: flat tables and switches.
var longFunctions = map[string]bool{}

func TestFilesAndFunctionsKeepTheirSize(t *testing.T) {
	t.Parallel()
	type function struct {
		name  string
		lines int
	}
	var functions []function
	for _, f := range allSources(t) {
		if f.test {
			continue
		}
		if n := f.lines(); n > maxFileLines {
			t.Errorf("%s has %d lines: split it by idea", f.path, n)
		}
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			n := f.fset.Position(fn.End()).Line - f.fset.Position(fn.Pos()).Line + 1
			functions = append(functions, function{f.path + ": " + fn.Name.Name, n})
		}
	}
	slices.SortFunc(functions, func(a, b function) int { return b.lines - a.lines })
	for i, fn := range functions {
		if i < 10 {
			t.Logf("%4d lines  %s", fn.lines, fn.name)
		}
		if fn.lines > maxFunctionLines && !longFunctions[fn.name] {
			t.Errorf("%s has %d lines", fn.name, fn.lines)
		}
	}
}

func TestNoFileOrPackageIsNamedAfterNothing(t *testing.T) {
	t.Parallel()
	bad := []string{"util", "utils", "helper", "helpers", "misc", "common", "types", "models", "handlers", "repository"}
	for _, f := range allSources(t) {
		base := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(f.path), ".go"), "_test")
		if slices.Contains(bad, base) || slices.Contains(bad, f.ast.Name.Name) {
			t.Errorf("%s: name it for the idea it holds", f.path)
		}
	}
}

// calledByOthers are exported methods that the standard library or a module calls by their name.
// Two are what tests of many packages need of a type.
var calledByOthers = []string{"MarshalJSON", "NewCursorKey", "Title"}

// An exported name whose only mention outside of tests is its declaration is either dead or should not be exported.
func TestExportedNamesHaveAUser(t *testing.T) {
	t.Parallel()
	declared, used := map[string]string{}, map[string]int{}
	for _, f := range allSources(t) {
		if f.test || isTestPackage(filepath.Dir(f.path)) {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				used[id.Name]++
			}
			return true
		})
		if !strings.HasPrefix(f.path, "internal/") {
			continue
		}
		for _, name := range exportedTopLevel(f.ast) {
			declared[name] = f.path
		}
	}
	for name, path := range declared {
		if used[name] < 2 && !slices.Contains(calledByOthers, name) {
			t.Errorf("%s: %s is exported and nothing but tests uses it", path, name)
		}
	}
}

// exportedTopLevel lists exported functions, methods, types, constants and variables.
func exportedTopLevel(f *ast.File) []string {
	var names []string
	add := func(id *ast.Ident) {
		if id.IsExported() {
			names = append(names, id.Name)
		}
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			add(d.Name)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					add(s.Name)
				case *ast.ValueSpec:
					for _, id := range s.Names {
						add(id)
					}
				}
			}
		}
	}
	return names
}

// skipCall describes one call of t.Skip with its constant text.
func skipCall(f *sourceFile, call *ast.CallExpr) (string, bool) {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) {
		return "", false
	}
	reason := ""
	if len(call.Args) > 0 {
		if lit, ok := call.Args[0].(*ast.BasicLit); ok {
			reason = lit.Value
		}
	}
	return fmt.Sprintf("%s %s(%s)", f.path, sel.Sel.Name, reason), true
}

func TestEverySkipIsListedWithItsReason(t *testing.T) {
	t.Parallel()
	listed := golden(t, "testdata/skips.txt")
	var found []string
	for _, f := range allSources(t) {
		if f.path == "internal/pkgdoc_test.go" {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if s, ok := skipCall(f, call); ok {
					found = append(found, s)
				}
			}
			return true
		})
	}
	slices.Sort(found)
	if *update {
		head := "# Every skip of the project: file, call, reason as written. A mode that AIRLOCK_REQUIRE names never skips.\n"
		if err := os.WriteFile("testdata/skips.txt", []byte(head+strings.Join(found, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, s := range found {
		if !slices.Contains(listed, s) {
			t.Errorf("not in testdata/skips.txt: %s", s)
		}
	}
	for _, s := range listed {
		if !slices.Contains(found, s) {
			t.Errorf("testdata/skips.txt lists a skip that is gone: %s", s)
		}
	}
}

// TestWhereIsItNamesRealFiles follows every path of ARCHITECTURE.md; a bare name belongs to the folder named before it.
func TestWhereIsItNamesRealFiles(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	word := regexp.MustCompile(`[A-Za-z0-9_./-]+`)
	_, table, _ := strings.Cut(string(b), "## Where is it?")
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		dir := ""
		for _, w := range word.FindAllString(cells[2], -1) {
			w = strings.TrimRight(w, ".,")
			switch {
			case strings.Contains(w, "/"):
				dir = filepath.Dir(w)
			case strings.HasSuffix(w, ".go") && w != ".go":
				w = filepath.Join(dir, w)
			default:
				continue
			}
			if strings.HasSuffix(w, "_test.go") || strings.HasSuffix(w, "/") || strings.HasPrefix(w, "cmd/airlock/.") {
				continue // patterns, not files
			}
			if _, err := os.Stat(filepath.Join("..", w)); err != nil {
				t.Errorf("%s is not there, says the row: %s", w, line)
			}
		}
	}
}
