package file

import (
	"path"
	"strings"
	"unicode/utf8"

	"github.com/airlock-sandbox/airlock/internal/wire"
)

const (
	maxNameChars = 255
	maxNameBytes = 255 // of a Linux file name
	forbidden    = `<>:"|?*\/`
)

func badRune(r rune) bool { return r < 0x20 || strings.ContainsRune(forbidden, r) }

// cleanName applies the filename rule to what a client sent: the last path component, "" when there is
// none. What is not allowed in it is a 400; nothing else is changed, neither normal form nor bidi controls.
func cleanName(sent string) (string, error) {
	if !utf8.ValidString(sent) {
		return "", wire.Invalid("file: the filename is not valid UTF-8.")
	}
	name := sent[strings.LastIndexAny(sent, `/\`)+1:]
	if name == "" || name == "." || name == ".." {
		return "", nil
	}
	if utf8.RuneCountInString(name) > maxNameChars {
		return "", wire.Invalid("file: the filename is longer than %d characters.", maxNameChars)
	}
	for _, r := range name {
		if badRune(r) {
			return "", wire.Invalid("file: the filename holds %q, which is not allowed; neither are control characters and any of %s.", r, forbidden)
		}
	}
	return name, nil
}

// outputName makes a name that follows the same rule out of any Linux file name.
func outputName(name string) string {
	name = strings.Map(func(r rune) rune {
		if badRune(r) || r == utf8.RuneError {
			return '_'
		}
		return r
	}, name)
	if name == "" || name == "." || name == ".." {
		return "unnamed"
	}
	return name
}

// DiskName is the name for the copy of a file in a container: at most 255 bytes, the extension kept, and
// without the control characters that reorder text, which could make report\u202efdp.exe look like a PDF.
func DiskName(name string) string {
	name = strings.Map(func(r rune) rune {
		if badRune(r) || bidiControl(r) || r == utf8.RuneError || r == 0x7f {
			return '_'
		}
		return r
	}, name)
	if name == "" || name == "." || name == ".." {
		return "unnamed"
	}
	return shorten(name, maxNameBytes)
}

func bidiControl(r rune) bool {
	return r == 0x061c || r == 0x200e || r == 0x200f || (r >= 0x202a && r <= 0x202e) || (r >= 0x2066 && r <= 0x2069)
}

// shorten cuts the stem, at a character's border.
func shorten(name string, limit int) string {
	if len(name) <= limit {
		return name
	}
	ext := path.Ext(name)
	if len(ext) > 32 || ext == name {
		ext = ""
	}
	cut := limit - len(ext)
	for cut > 0 && !utf8.RuneStart(name[cut]) {
		cut--
	}
	return name[:cut] + ext
}
