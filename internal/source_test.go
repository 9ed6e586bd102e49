package internal

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files")

const module = "github.com/airlock-sandbox/airlock"

// sourceFile is a parsed Go file of the module; its path is relative to the root.
type sourceFile struct {
	path string
	test bool
	ast  *ast.File
	fset *token.FileSet
	text []byte
}

func (f *sourceFile) lines() int { return strings.Count(string(f.text), "\n") }

func (f *sourceFile) dir() string { return filepath.ToSlash(filepath.Dir(f.path)) }

// sources parses the module's Go files once, as git knows them plus those not yet added.
var sources = sync.OnceValues(func() ([]*sourceFile, error) {
	out, err := gitFiles("*.go")
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	var files []*sourceFile
	for _, path := range out {
		text, err := os.ReadFile(filepath.Join("..", path))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		parsed, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, &sourceFile{path: path, test: strings.HasSuffix(path, "_test.go"), ast: parsed, fset: fset, text: text})
	}
	return files, nil
})

func allSources(t *testing.T) []*sourceFile {
	t.Helper()
	files, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// gitFiles lists the files of the work tree that are not ignored.
func gitFiles(patterns ...string) ([]string, error) {
	args := append([]string{"-C", "..", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--"}, patterns...)
	out, err := exec.Command("git", args...).Output()
	if err != nil {
		return nil, err
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 }), nil
}

// golden reads a list file without its comments and empty lines.
func golden(t *testing.T, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

// testFunctions is the set of the names of all test functions.
func testFunctions(t *testing.T) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	for _, f := range allSources(t) {
		if !f.test {
			continue
		}
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && (strings.HasPrefix(fn.Name.Name, "Test") || strings.HasPrefix(fn.Name.Name, "Fuzz")) {
				names[fn.Name.Name] = true
			}
		}
	}
	return names
}
