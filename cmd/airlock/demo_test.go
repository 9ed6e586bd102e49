//go:build linux

package main

import (
	"archive/zip"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/airlock-sandbox/airlock/cmd/airlock/demo"
	"github.com/airlock-sandbox/airlock/internal/claude"
)

// TestDemoEditsTheReportAndLeavesTheRest is the demo as a user runs it: the real server, sandbox, LibreOffice and Node.
func TestDemoEditsTheReportAndLeavesTheRest(t *testing.T) {
	if os.Geteuid() != 0 {
		if strings.Contains(os.Getenv("AIRLOCK_REQUIRE"), "root") {
			t.Fatal("root is required: the demo makes a sandbox")
		}
		t.Skip("needs root: the demo makes a sandbox")
	}
	t.Setenv("AIRLOCK_ROOTFS", rootfsFolder())
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	t.Setenv("ANTHROPIC_API_KEY", "")
	out := filepath.Join(t.TempDir(), "out")
	account := runDemo(t, out)

	content := func(name string) []byte {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	c, err := demo.Compare(content("originals/"+demo.Report), content(demo.Report))
	if err != nil {
		t.Fatal(err)
	}
	if err := demo.CheckReport(c); err != nil {
		t.Error(err)
	}
	for _, name := range []string{demo.PDF, demo.Chart, demo.Slide} {
		if _, err := demo.Describe(name, content(name)); err != nil {
			t.Errorf("%s %v", name, err)
		}
	}
	if text := slideText(t, content(demo.Slide)); !strings.Contains(text, "EUR 7.22 m") {
		t.Error("the slide lacks the net revenue")
	}
	// The script reads the PDF back with pdftotext inside the sandbox; what it read is in the account.
	_, after, _ := strings.Cut(account, "soffice --headless")
	for _, want := range []string{"Executive Summary\n", "Net revenue in 2025 was EUR 7.22 million"} {
		if !strings.Contains(after, want) {
			t.Errorf("the text of the PDF lacks %q in:\n%s", want, account)
		}
	}
	for _, want := range []string{demo.Report, demo.PDF, demo.Chart, demo.Slide, "container container_", "The server has stopped."} {
		if !strings.Contains(account, want) {
			t.Errorf("the account does not name %q:\n%s", want, account)
		}
	}
	if left, err := filepath.Glob(filepath.Join(os.Getenv("XDG_DATA_HOME"), "airlock", "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func runDemo(t *testing.T, out string) string {
	t.Helper()
	cmd := newDemoCommand()
	var account, progress bytes.Buffer
	cmd.SetOut(&account)
	cmd.SetErr(&progress)
	cmd.SetArgs([]string{"--out", out})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("%v\n%s%s", err, account.String(), progress.String())
	}
	return account.String()
}

func slideText(t *testing.T, pptx []byte) string {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(pptx), int64(len(pptx)))
	if err != nil {
		t.Fatal(err)
	}
	f, err := z.Open("ppt/slides/slide1.xml")
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestDemoKeepsFilesThatAreThere(t *testing.T) {
	t.Parallel()
	d := &demoRun{dir: t.TempDir()}
	path := filepath.Join(d.dir, demo.Report)
	for range 2 { // the second run finds the first one's sample
		if err := d.original(path, []byte("sample")); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := d.original(path, []byte("sample")); err == nil || !strings.Contains(err.Error(), "--out") {
		t.Errorf("somebody's own file: %v", err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "mine" {
		t.Errorf("the file is now %q, %v", b, err)
	}
}

func TestDemoReportIsToldAsItIs(t *testing.T) {
	t.Parallel()
	before, err := demo.Sample(demo.Report)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := describe(demo.Report, before)
	if err == nil || len(lines) == 0 {
		t.Errorf("an untouched report is %q, %v, want an error and a description", lines, err)
	}
	if _, err := describe("virus.exe", []byte("MZ")); err == nil {
		t.Error("an unexpected file was accepted")
	}
}

func demoBlock(t *testing.T, s string) *claude.Node {
	t.Helper()
	n, err := claude.Parse([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestDemoViewTellsStepsFailuresAndLongOutput(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	v := &demoView{out: &out}
	v.started(demoBlock(t, `{"type":"text","text":""}`))
	v.text("I will look. ")
	v.text("At \x1b[31mit.")
	v.finished(demoBlock(t, `{"type":"text","text":"I will look. At it."}`))
	use := `{"type":"server_tool_use","id":"a","name":"bash_code_execution","input":{"command":"ls"}}`
	v.finished(demoBlock(t, use))
	v.finished(demoBlock(t, `{"type":"bash_code_execution_tool_result","content":{"stdout":"`+strings.Repeat(`line\n`, 20)+`","stderr":"","return_code":0}}`))
	v.finished(demoBlock(t, use))
	v.finished(demoBlock(t, `{"type":"bash_code_execution_tool_result","content":{"stdout":"","stderr":"no such thing","return_code":2}}`))
	got := out.String()
	for _, want := range []string{"● I will look. At ", "  ✓ $ ls  (", "… 10 more lines", "  ✗ $ ls  (", "      no such thing"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "\x1b") || v.failed != 1 {
		t.Errorf("%d failures, output %q", v.failed, got)
	}
}

func TestWrapBreaksBetweenWords(t *testing.T) {
	t.Parallel()
	if got := wrap("one two  three\nfour äöü", 8); got != "one two\nthree\nfour äöü" {
		t.Errorf("got %q", got)
	}
}
