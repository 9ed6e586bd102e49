package file

import (
	"mime"
	"path"
	"strings"

	"github.com/gabriel-vasile/mimetype"

	"github.com/airlock-sandbox/airlock/internal/wire"
)

const (
	unknownMIME = "application/octet-stream"
	// sniffBytes is how much of the content a type is told from.
	sniffBytes = 3072
)

// byExtension is our own table: the system's differs from machine to machine.
var byExtension = map[string]string{
	".txt": "text/plain", ".log": "text/plain", ".text": "text/plain", ".md": "text/markdown", ".csv": "text/csv",
	".tsv": "text/tab-separated-values", ".html": "text/html", ".htm": "text/html", ".css": "text/css",
	".js": "text/javascript", ".mjs": "text/javascript", ".ts": "text/plain", ".py": "text/x-python",
	".sh": "text/x-shellscript", ".sql": "text/plain", ".rtf": "application/rtf", ".ics": "text/calendar",
	".json": "application/json", ".jsonl": "application/jsonl", ".xml": "application/xml",
	".yaml": "application/yaml", ".yml": "application/yaml", ".toml": "application/toml",
	".ipynb": "application/x-ipynb+json", ".wasm": "application/wasm",
	".pdf": "application/pdf", ".epub": "application/epub+zip",
	".doc": "application/msword", ".xls": "application/vnd.ms-excel", ".ppt": "application/vnd.ms-powerpoint",
	".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
	".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
	".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
	".odt":  "application/vnd.oasis.opendocument.text",
	".ods":  "application/vnd.oasis.opendocument.spreadsheet",
	".odp":  "application/vnd.oasis.opendocument.presentation",
	".png":  "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp",
	".svg": "image/svg+xml", ".bmp": "image/bmp", ".tif": "image/tiff", ".tiff": "image/tiff",
	".ico": "image/vnd.microsoft.icon", ".heic": "image/heic", ".avif": "image/avif",
	".mp3": "audio/mpeg", ".wav": "audio/wav", ".flac": "audio/flac", ".ogg": "audio/ogg", ".m4a": "audio/mp4",
	".mp4": "video/mp4", ".webm": "video/webm", ".mov": "video/quicktime", ".avi": "video/x-msvideo", ".mkv": "video/x-matroska",
	".zip": "application/zip", ".gz": "application/gzip", ".tar": "application/x-tar", ".bz2": "application/x-bzip2",
	".xz": "application/x-xz", ".7z": "application/x-7z-compressed", ".zst": "application/zstd", ".tgz": "application/gzip",
	".parquet": "application/vnd.apache.parquet", ".sqlite": "application/vnd.sqlite3", ".db": "application/vnd.sqlite3",
	".ttf": "font/ttf", ".otf": "font/otf", ".woff": "font/woff", ".woff2": "font/woff2",
}

// parseMIME drops the parameters of a Content-Type. "" means the type is not known.
func parseMIME(sent string) (string, error) {
	if strings.TrimSpace(sent) == "" {
		return "", nil
	}
	t, _, err := mime.ParseMediaType(sent)
	major, minor, ok := strings.Cut(t, "/")
	if err != nil || !ok || major == "" || minor == "" || len(t) > 255 {
		return "", wire.Invalid("file: the part's Content-Type is not a media type.")
	}
	if t == unknownMIME {
		return "", nil
	}
	return t, nil
}

// detectMIME tells the type by the name's extension, then by the beginning of the content.
func detectMIME(name string, head []byte) string {
	if t, ok := byExtension[strings.ToLower(path.Ext(name))]; ok {
		return t
	}
	if len(head) == 0 {
		return unknownMIME
	}
	t, _, err := mime.ParseMediaType(mimetype.Detect(head).String())
	if err != nil {
		return unknownMIME
	}
	return t
}

// preferred are the extensions of types that have several.
var preferred = map[string]string{
	"text/plain": ".txt", "text/html": ".html", "text/javascript": ".js", "application/yaml": ".yaml",
	"image/jpeg": ".jpg", "image/tiff": ".tiff", "application/gzip": ".gz", "application/vnd.sqlite3": ".sqlite",
}

// extensionOf gives the extension for a type, "" when none is known.
func extensionOf(t string) string {
	if ext, ok := preferred[t]; ok {
		return ext
	}
	for ext, have := range byExtension {
		if have == t {
			return ext
		}
	}
	if m := mimetype.Lookup(t); m != nil {
		return m.Extension()
	}
	return ""
}
