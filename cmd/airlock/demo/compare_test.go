package demo

import (
	"archive/zip"
	"bytes"
	"strings"
	"testing"
)

// rewrite copies a document and lets edit change, add (returning more) or drop (returning nil) parts.
func rewrite(t *testing.T, document []byte, edit func(name string, part []byte) []byte, added map[string]string) []byte {
	t.Helper()
	all, err := parts(document)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	write := func(name string, part []byte) {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	for name, part := range all {
		if part = edit(name, part); part != nil {
			write(name, part)
		}
	}
	for name, part := range added {
		write(name, []byte(part))
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func report(t *testing.T) []byte {
	t.Helper()
	b, err := Sample(Report)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const section = `<w:p><w:r><w:t>Executive Summary</w:t></w:r></w:p><w:p><w:r><w:drawing/></w:r></w:p>`

// asAsked is the smallest edit that does what the demo asks for.
func asAsked(name string, part []byte) []byte {
	switch name {
	case documentPart:
		s := strings.ReplaceAll(string(part), ">pending<", ">1<")
		return []byte(strings.Replace(s, "<w:body>", "<w:body>"+section, 1))
	case "word/_rels/document.xml.rels":
		return append(part, '\n')
	}
	return part
}

var chart = map[string]string{"word/media/" + Chart: "png"}

func compare(t *testing.T, edit func(string, []byte) []byte, added map[string]string) *Comparison {
	t.Helper()
	before := report(t)
	c, err := Compare(before, rewrite(t, before, edit, added))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestReportCheckAcceptsTheEditThatWasAskedFor(t *testing.T) {
	t.Parallel()
	c := compare(t, asAsked, chart)
	if err := CheckReport(c); err != nil {
		t.Error(err)
	}
	if len(c.NewBlocks) != 3 || c.KeptBlocks < 220 {
		t.Errorf("%d new and %d kept blocks, want 3 and at least 220", len(c.NewBlocks), c.KeptBlocks)
	}
}

func TestReportCheckRefusesEveryOtherDifference(t *testing.T) {
	t.Parallel()
	document := func(old, now string) func(string, []byte) []byte {
		return func(name string, part []byte) []byte {
			part = asAsked(name, part)
			if name == documentPart {
				if !bytes.Contains(part, []byte(old)) {
					t.Errorf("the sample has no %q", old)
				}
				return []byte(strings.Replace(string(part), old, now, 1))
			}
			return part
		}
	}
	for _, tc := range []struct {
		name  string
		edit  func(string, []byte) []byte
		added map[string]string
		want  string
	}{
		{"nothing done", func(_ string, p []byte) []byte { return p }, nil, "changed parts"},
		{"a tracked change altered", document(`w:author="J. Okafor"`, `w:author="Someone"`), chart, "blocks of the original changed"},
		{"a paragraph reworded", document("The board expects", "The board hopes for"), chart, "blocks of the original changed"},
		{"no heading", document(">Executive Summary<", ">Summary<"), chart, "new heading: false"},
		{"no picture", document("<w:drawing/>", ""), chart, "new picture: false"},
		{"table half filled", document(">1<", ">pending<"), chart, "filled table: false"},
		{"no chart part", asAsked, nil, "added parts"},
		{"another part added", asAsked, map[string]string{"word/media/" + Chart: "png", "word/extra.xml": "x"}, "added parts"},
		{"footnotes changed", func(n string, p []byte) []byte {
			if n == "word/footnotes.xml" {
				return append(p, ' ')
			}
			return asAsked(n, p)
		}, chart, "changed parts"},
		{"header gone", func(n string, p []byte) []byte {
			if n == "word/header1.xml" {
				return nil
			}
			return asAsked(n, p)
		}, chart, "parts are gone"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			before := report(t)
			c, err := Compare(before, rewrite(t, before, tc.edit, tc.added))
			if err == nil {
				err = CheckReport(c)
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("check says %v, want it to contain %q", err, tc.want)
			}
		})
	}
}

func TestCompareRefusesWhatIsNoDocument(t *testing.T) {
	t.Parallel()
	if _, err := Compare(report(t), []byte("no zip")); err == nil {
		t.Error("a text was taken for a document")
	}
	if _, err := Compare(report(t), report(t)[:1000]); err == nil {
		t.Error("a torn document was accepted")
	}
}
