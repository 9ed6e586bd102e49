package server

import (
	"slices"
	"strings"

	"github.com/airlock-sandbox/airlock/internal/codeexec"
	"github.com/airlock-sandbox/airlock/internal/sandbox/rootfs"
)

// commandsOf names the command-line tools worth telling a model about, by the package that brings them.
var commandsOf = map[string][]string{
	"bc": {"bc"}, "7zip": {"7z"}, "p7zip-full": {"7z"}, "fd-find": {"fd"}, "jq": {"jq"}, "libreoffice-core": {"soffice"},
	"libreoffice-core-nogui": {"soffice"}, "nodejs": {"node"}, "pandoc": {"pandoc"}, "poppler-utils": {"pdftotext", "pdftoppm"},
	"qpdf": {"qpdf"}, "ripgrep": {"rg"}, "sqlite3": {"sqlite3"}, "tesseract-ocr": {"tesseract"}, "unrar-free": {"unrar"},
	"unzip": {"unzip"}, "zip": {"zip"}, "git": {"git"}, "ghostscript": {"gs"}, "imagemagick": {"convert"},
}

// libraryOf is what the tool description may promise, read from the image itself, so that it cannot promise what is not
// there.
func libraryOf(img *rootfs.Image) codeexec.Library {
	var lib codeexec.Library
	// "3.13.5-1" is told as 3.13: a security update must not change the description, which upstreams cache.
	if parts := strings.SplitN(img.Packages["python3"], ".", 3); len(parts) == 3 {
		lib.Python = parts[0] + "." + parts[1]
	}
	for _, l := range img.PythonLibraries {
		lib.Packages = append(lib.Packages, l.Name)
	}
	for pkg, names := range commandsOf {
		if img.Packages[pkg] != "" {
			lib.Commands = append(lib.Commands, names...)
		}
	}
	slices.Sort(lib.Commands)
	lib.Commands = slices.Compact(lib.Commands)
	return lib
}
