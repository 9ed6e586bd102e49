package wire

import (
	"net/http"
	"strings"
)

// Betas gives the names in all anthropic-beta headers; each header may hold a comma list.
func Betas(h http.Header) map[string]bool {
	set := map[string]bool{}
	for _, v := range h.Values("Anthropic-Beta") {
		for _, name := range strings.Split(v, ",") {
			if name = strings.TrimSpace(name); name != "" {
				set[name] = true
			}
		}
	}
	return set
}
