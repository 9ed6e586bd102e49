package rootfs

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// wheel makes a Python wheel with one module; its distribution is one that tool descriptions know.
func wheel(t *testing.T, name, module, version string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	info := name + "-" + version + ".dist-info/"
	for path, text := range map[string]string{
		module + "/__init__.py": "x = 1\n",
		info + "METADATA":       "Metadata-Version: 2.1\nName: " + name + "\nVersion: " + version + "\n",
		info + "WHEEL":          "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		info + "RECORD":         "",
	} {
		w, err := z.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestWheelsAreInstalledByHashAndAppearInTheManifest(t *testing.T) {
	// A copy by hard links: pip only adds files.
	tree := filepath.Join(t.TempDir(), "tree")
	from := image(t, "office")
	if err := exec.CommandContext(t.Context(), "cp", "-al", from, tree).Run(); err != nil {
		if err := exec.CommandContext(t.Context(), "cp", "-a", from, tree).Run(); err != nil {
			t.Fatal(err)
		}
	}
	wheels := t.TempDir()
	write := func(name string, b []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(wheels, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	packed := wheel(t, "pdf2image", "pdf2image", "1.17.0")
	sum := sha256.Sum256(packed)
	write("pdf2image-1.17.0-py3-none-any.whl", packed)

	for name, lock := range map[string]string{
		"another hash": "pdf2image==1.17.0 --hash=sha256:" + strings.Repeat("0", 64) + "\n",
		"no hash":      "pdf2image==1.17.0\n",
		"no wheel":     "pyarrow==1.0 --hash=sha256:" + strings.Repeat("0", 64) + "\n",
	} {
		write(requirementsFile, []byte(lock))
		if err := installWheels(t.Context(), tree, wheels); err == nil {
			t.Errorf("%s: installed", name)
		}
	}
	write(requirementsFile, []byte("pdf2image==1.17.0 --hash=sha256:"+hex.EncodeToString(sum[:])+"\n"))
	if err := installWheels(t.Context(), tree, wheels); err != nil {
		t.Fatal(err)
	}
	libraries, err := pythonLibraries(t.Context(), tree)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(libraries, Library{Name: "pdf2image", Version: "1.17.0"}) || !slices.ContainsFunc(libraries, func(l Library) bool { return l.Name == "pandas" }) {
		t.Errorf("libraries are %v", libraries)
	}
}
