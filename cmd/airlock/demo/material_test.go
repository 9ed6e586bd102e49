package demo

import (
	"bytes"
	"encoding/base64"
	"regexp"
	"strings"
	"testing"
)

func TestSamplesHaveWhatRealDocumentsHave(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]map[string]string{
		Report: {
			"word/document.xml":     `<w:del .*<w:ins .*<w:tbl>.*<w:drawing>`,
			"word/footnotes.xml":    `<w:footnote w:id="1">`,
			"word/header1.xml":      `Annual report 2025`,
			"word/media/image5.png": "",
		},
		Workbook: {
			"xl/worksheets/sheet1.xml": `<f>SUMIFS\(.*<mergeCell ref="A1:H2"/>.*<drawing `,
			"xl/worksheets/sheet2.xml": `<row r="5001" .*<f>ROUND\(E5001`,
			"xl/charts/chart1.xml":     `<c:barChart>`,
		},
	} {
		b, err := Sample(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) >= 1<<20 {
			t.Errorf("%s has %d bytes, want less than a MiB: it is part of every binary", name, len(b))
		}
		all, err := parts(b)
		if err != nil {
			t.Fatal(err)
		}
		for part, pattern := range want {
			if text, ok := all[part]; !ok || !regexp.MustCompile("(?s)"+pattern).Match(text) {
				t.Errorf("%s: part %s is missing or has no %q", name, part, pattern)
			}
		}
	}
}

func TestScriptUsesTheNamesOfTheMaterial(t *testing.T) {
	t.Parallel()
	script, err := Script()
	if err != nil {
		t.Fatal(err)
	}
	prompt, err := Prompt()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{Report, Workbook, PDF, Chart, Slide, Heading} {
		if !strings.Contains(script, name) || !strings.Contains(prompt, name) {
			t.Errorf("%s is not in the script or not in the prompt", name)
		}
	}
}

func TestDescribeRefusesBrokenResults(t *testing.T) {
	t.Parallel()
	pixel, err := base64.StdEncoding.DecodeString("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Describe(Chart, pixel); err != nil || got != "PNG, 1 × 1" {
		t.Errorf("a good PNG is %q, %v", got, err)
	}
	if got, err := Describe(PDF, []byte("%PDF-1.7\n%%EOF\n")); err != nil || got != "PDF" {
		t.Errorf("a good PDF is %q, %v", got, err)
	}
	for name, content := range map[string][]byte{
		Chart: pixel[:20], PDF: []byte("%PDF-1.7 torn"), Slide: bytes.Repeat([]byte("PK"), 100), "other.exe": []byte("MZ"),
	} {
		if got, err := Describe(name, content); err == nil {
			t.Errorf("a broken %s is %q", name, got)
		}
	}
}
