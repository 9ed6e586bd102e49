package file

import (
	"net/http"

	"github.com/airlock-sandbox/airlock/internal/tenant"
)

func (s *Service) ServeUpload(w http.ResponseWriter, r *http.Request, c tenant.Caller) error   { panic("soon") } // POST /v1/files
func (s *Service) ServeList(w http.ResponseWriter, r *http.Request, c tenant.Caller) error     { panic("soon") } // GET /v1/files
func (s *Service) ServeGet(w http.ResponseWriter, r *http.Request, c tenant.Caller) error      { panic("soon") } // GET /v1/files/{id}
func (s *Service) ServeDownload(w http.ResponseWriter, r *http.Request, c tenant.Caller) error { panic("soon") } // GET (and HEAD) /v1/files/{id}/content
func (s *Service) ServeDelete(w http.ResponseWriter, r *http.Request, c tenant.Caller) error   { panic("soon") } // DELETE /v1/files/{id}
