package tenant

import "net/http"

// Authenticate gives the caller of r if its credential is of a kind in want. Neither header nor a bad
// key is a 401, a good key of another kind a 403, a bad scope header a 400.
func (s *Service) Authenticate(r *http.Request, want Kind) (Caller, error) { panic("soon") }

func (s *Service) ServeCreateApp(w http.ResponseWriter, r *http.Request, c Caller) error { panic("soon") } // POST /airlock/v1/apps
func (s *Service) ServeListApps(w http.ResponseWriter, r *http.Request, c Caller) error  { panic("soon") } // GET /airlock/v1/apps
func (s *Service) ServeGetApp(w http.ResponseWriter, r *http.Request, c Caller) error    { panic("soon") } // GET /airlock/v1/apps/{id}
func (s *Service) ServeUpdateApp(w http.ResponseWriter, r *http.Request, c Caller) error { panic("soon") } // PATCH (or POST) /airlock/v1/apps/{id} {"disabled":true}
func (s *Service) ServeCreateKey(w http.ResponseWriter, r *http.Request, c Caller) error { panic("soon") } // POST /airlock/v1/keys
func (s *Service) ServeListKeys(w http.ResponseWriter, r *http.Request, c Caller) error  { panic("soon") } // GET /airlock/v1/keys
func (s *Service) ServeRevokeKey(w http.ResponseWriter, r *http.Request, c Caller) error { panic("soon") } // DELETE /airlock/v1/keys/{id}
