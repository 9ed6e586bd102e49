package container_test

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/container/containertest"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

func TestListTakesEachParameterOnceAndChecksIt(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, e *containertest.Env) {
		for _, query := range []string{"limit=0", "limit=101", "limit=x", "limit=", "limit=1&limit=2", "page=", "page=a&page=b", "page=x"} {
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/?"+query, nil)
			name, _, _ := strings.Cut(query, "=")
			var we *wire.Error
			if err := e.ServeList(httptest.NewRecorder(), r, e.Caller); !errors.As(err, &we) || we.HTTPStatus() != 400 || !strings.HasPrefix(we.Message, name+":") {
				t.Errorf("%s gave %v", query, err)
			}
		}
	})
}
