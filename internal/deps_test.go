package internal

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// policy is the list of arrows: each package and the packages of this module it imports outside its tests. An arrow that
// is not here is refused, and so is one that no longer exists. A new arrow needs a line in docs/adr.
const policy = `
airlocktest: airlock
examples/go/app-scope-job: airlock
examples/go/callable-tool: airlock
examples/go/download: airlock
examples/go/keep-sandbox: airlock
examples/go/upload-and-edit: airlock
bench: db sandbox sandbox/attack sandbox/drivers sandbox/guest sandbox/rootfs
bench/soak: server server/servertest
scripts/rootfs: sandbox/rootfs
cmd/airlock: claude cmd/airlock/demo sandbox sandbox/attack sandbox/drivers sandbox/host sandbox/rootfs server wire
cmd/airlock-guest: sandbox/guest/serve sandbox/gvisor/setup sandbox/native/setup
admission: wire
audit: db wire
blob/blobtest: blob
claude: wire
codeexec: claude container sandbox sandbox/guest wire
container: admission blob db file sandbox sandbox/guest sandbox/rootfs tenant usage wire
container/containertest: blob container db file sandbox sandbox/drivers sandbox/rootfs tenant usage wire
db/dbtest: db
direct: container sandbox sandbox/guest tenant wire
file: blob db tenant wire
jwt: wire
messages: claude codeexec container file tenant upstream wire
sandbox: sandbox/guest
sandbox/drivers: sandbox sandbox/gvisor sandbox/native
sandbox/guest/serve: sandbox/guest sandbox/guest/python sandbox/vfork
sandbox/gvisor: sandbox sandbox/guest sandbox/guest/bin sandbox/gvisor/setup sandbox/seccomp sandbox/spawn sandbox/walls
sandbox/gvisor/setup: sandbox/walls
sandbox/host: sandbox sandbox/guest/bin sandbox/gvisor sandbox/rootfs
sandbox/native: sandbox sandbox/guest sandbox/guest/bin sandbox/native/setup sandbox/seccomp sandbox/spawn sandbox/walls
sandbox/native/setup: sandbox/walls
sandbox/attack: sandbox sandbox/guest
sandbox/sandboxtest: sandbox sandbox/attack sandbox/guest
sandbox/spawn: sandbox sandbox/vfork sandbox/walls
server: admission audit blob codeexec container db direct file jwt messages sandbox sandbox/drivers sandbox/rootfs tenant upstream usage wire
tenant: audit db jwt wire
upstream: claude upstream/script wire
upstream/script: claude
usage: db tenant wire
usage/usagetest: db tenant usage wire
`

type goPackage struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

func goPackages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = ".."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var packages []goPackage
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var p goPackage
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

// short is an import path inside the module without what all have in common.
func short(path string) string {
	if path == module {
		return "airlock" // the helpers in the root
	}
	path = strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
	return strings.TrimPrefix(path, "internal/")
}

func inModule(imports []string) []string {
	var out []string
	for _, i := range imports {
		if i == module || strings.HasPrefix(i, module+"/") {
			out = append(out, short(i))
		}
	}
	slices.Sort(out)
	return out
}

func TestImportsFollowThePolicy(t *testing.T) {
	t.Parallel()
	allowed := map[string][]string{}
	for line := range strings.Lines(policy) {
		from, to, ok := strings.Cut(strings.TrimSpace(line), ":")
		if ok {
			allowed[from] = strings.Fields(to)
		}
	}
	var real strings.Builder
	for _, p := range goPackages(t) {
		from, arrows := short(p.ImportPath), inModule(p.Imports)
		if len(arrows) == 0 && len(allowed[from]) == 0 {
			continue
		}
		real.WriteString(from + ": " + strings.Join(arrows, " ") + "\n")
		for _, to := range arrows {
			if !slices.Contains(allowed[from], to) {
				t.Errorf("%s imports %s, which the policy does not list", from, to)
			}
		}
		for _, to := range allowed[from] {
			if !slices.Contains(arrows, to) {
				t.Errorf("the policy lists %s -> %s, which does not exist", from, to)
			}
		}
		delete(allowed, from)
	}
	for from := range allowed {
		t.Errorf("the policy lists the package %s, which does not exist", from)
	}
	if t.Failed() {
		t.Logf("the arrows that exist:\n%s", real.String())
	}
}

func TestTestPackagesAreImportedByTestsAlone(t *testing.T) {
	t.Parallel()
	for _, p := range goPackages(t) {
		for _, to := range inModule(p.Imports) {
			if isTestPackage(to) && !isTestPackage(short(p.ImportPath)) {
				t.Errorf("%s imports %s outside its tests", short(p.ImportPath), to)
			}
		}
	}
}

// isTestPackage: what measures a server is never part of one.
func isTestPackage(path string) bool {
	if strings.HasPrefix(path, "bench/") {
		return true
	}
	last := path[strings.LastIndex(path, "/")+1:]
	return strings.HasSuffix(last, "test") && last != "test"
}

// TestServerSideStaysOutOfTheGuest keeps the program inside a sandbox small and free of what is outside.
func TestServerSideStaysOutOfTheGuest(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("go", "list", "-deps", "./cmd/airlock-guest")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for dep := range strings.FieldsSeq(string(out)) {
		if dep == "net/http" || dep == "database/sql" || strings.HasPrefix(dep, module+"/internal/") && !strings.HasPrefix(dep, module+"/internal/sandbox/") {
			t.Errorf("the guest links %s", dep)
		}
	}
}

// TestLinkedModulesAreTheGoldenList compares what bin/airlock links with cmd/airlock/deps.txt; make deps rewrites it.
func TestLinkedModulesAreTheGoldenList(t *testing.T) {
	t.Parallel()
	const file = "../cmd/airlock/deps.txt"
	cmd := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}} {{.Version}}{{end}}", "./cmd/airlock", "./cmd/airlock-guest")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	lines = slices.DeleteFunc(lines, func(l string) bool { return strings.TrimSpace(l) == "" || strings.TrimSpace(l) == module })
	slices.Sort(lines)
	got := strings.Join(slices.Compact(lines), "\n") + "\n"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the linked modules changed; look at them, then run make deps\n got: %s\nwant: %s", got, want)
	}
}
