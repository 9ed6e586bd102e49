package wire

import (
	"strings"
	"testing"
)

func TestDispositionAsClientsWriteIt(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, name, filename string }{
		{`form-data; name="file"; filename="a.txt"`, "file", "a.txt"},
		{`Form-Data;name=file;FILENAME=a.txt`, "file", "a.txt"},
		{`form-data; filename="a.txt"; name="file"`, "file", "a.txt"},
		{`form-data; name="file"; filename="say \"hi\".txt"`, "file", `say "hi".txt`},
		{`form-data; name="file"; filename="say %22hi%22.txt"`, "file", `say "hi".txt`},
		{`form-data; name="file"; filename="a%0D%0Ab%0ac%0dd"`, "file", "a\r\nb\nc\rd"},
		{`form-data; name="file"; filename="100%25 %41 %zz.txt"`, "file", "100%25 %41 %zz.txt"},
		{`form-data; name="file"; filename="C:\dir\new.txt"`, "file", `C:\dir\new.txt`},
		{`form-data; name="file"; filename="a\\b"`, "file", `a\b`},
		{`form-data; name="file"; filename="第1组;x=.txt"`, "file", "第1组;x=.txt"},
		{`form-data; name="file"; filename="x"; filename*=UTF-8''%e2%82%ac%20rates`, "file", "€ rates"},
		{`form-data; name="file"; filename=`, "file", ""},
		{`form-data; name="fi%22le"`, `fi"le`, ""},
		{`form-data; name="file" ; filename="a" ; `, "file", "a"},
	} {
		d, err := parseDisposition(tt.in)
		if err != nil || d.name != tt.name || d.filename != tt.filename {
			t.Errorf("%s: %+v, %v", tt.in, d, err)
		}
	}
	for _, in := range []string{
		"", "form-data", "attachment; name=a", `form-data; filename="x"`, `form-data; name="file`, `form-data; name`, `form-data; ="x"`,
		`form-data; name="a"x; filename=b`, `form-data; name=a; filename*=b`, `form-data; name=a; filename*=UTF-8''%`, `form-data; name=a; filename*=UTF-16''a`,
		`form-data; name=a; filename*=UTF-8''%ff`,
	} {
		if d, err := parseDisposition(in); err == nil {
			t.Errorf("%s: accepted as %+v", in, d)
		}
	}
}

func FuzzDisposition(f *testing.F) {
	for _, s := range []string{`form-data; name="file"; filename="a\"b"`, `form-data; name=x; filename*=UTF-8''%41`, `form-data; name="`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := parseDisposition(s)
		if err == nil && len(d.name)+len(d.filename) > 2*len(s) {
			t.Errorf("%q grew to %+v", s, d)
		}
	})
}

func TestQuotedNamesSurviveBothEscapings(t *testing.T) {
	t.Parallel()
	backslash := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	percent := strings.NewReplacer(`"`, "%22", "\r", "%0D", "\n", "%0A")
	for _, name := range []string{`a"b`, `"`, `"a"`, "naïve", "a;b", `x="y"; z`} {
		for how, r := range map[string]*strings.Replacer{"backslash": backslash, "percent": percent} {
			d, err := parseDisposition(`form-data; name="file"; filename="` + r.Replace(name) + `"`)
			if err != nil || d.filename != name {
				t.Errorf("%s %q: %q, %v", how, name, d.filename, err)
			}
		}
	}
}
