//! The verdict on directives that the conversion does not read.

use super::scope::is;
use crate::directive::Directive;
use crate::report::Report;

/// Directives that the conversion reads; where one of them has no verdict, it is in force nowhere.
const READ: [&str; 91] = [
    "accessfilename",
    "adddefaultcharset",
    "addhandler",
    "addoutputfilter",
    "addtype",
    "alias",
    "aliasmatch",
    "allow",
    "allowoverride",
    "allowoverridelist",
    "authbasicprovider",
    "authname",
    "authtype",
    "authuserfile",
    "balancermember",
    "cgipassauth",
    "customlog",
    "dav",
    "define",
    "deny",
    "directoryindex",
    "directoryslash",
    "documentroot",
    "errordocument",
    "errorlog",
    "expiresactive",
    "expiresbytype",
    "expiresdefault",
    "fallbackresource",
    "fileetag",
    "forcetype",
    "header",
    "include",
    "includeoptional",
    "keepalive",
    "keepalivetimeout",
    "limitrequestbody",
    "listen",
    "logformat",
    "loglevel",
    "maxkeepaliverequests",
    "maxranges",
    "options",
    "order",
    "passenv",
    "proxyerroroverride",
    "proxypass",
    "proxypassmatch",
    "proxypassreverse",
    "proxypassreversecookiepath",
    "proxypreservehost",
    "proxyset",
    "proxytimeout",
    "redirect",
    "redirectmatch",
    "redirectpermanent",
    "redirecttemp",
    "removehandler",
    "require",
    "requireall",
    "requireany",
    "requirenone",
    "requestheader",
    "rewritebase",
    "rewritecond",
    "rewriteengine",
    "rewriteoptions",
    "rewriterule",
    "satisfy",
    "scriptalias",
    "scriptaliasmatch",
    "serveralias",
    "servername",
    "serverroot",
    "setenv",
    "sethandler",
    "setoutputfilter",
    "sslcacertificatefile",
    "sslcertificatefile",
    "sslcertificatekeyfile",
    "sslengine",
    "sslprotocol",
    "sslproxyengine",
    "sslverifyclient",
    "timeout",
    "transferlog",
    "undefine",
    "unsetenv",
    "virtualhost",
    "proxy",
    "php_flag",
];

/// Directives without a counterpart that need none, with the reason.
const NOT_NEEDED: [(&[&str], &str); 22] = [
    (&["loadmodule", "addmodule", "loadfile"], "there are no modules to load"),
    (
        &["user", "group"],
        "the server stays the user that starts it; write `user` into [server] for a start by root",
    ),
    (
        &[
            "pidfile",
            "mutex",
            "defaultruntimedir",
            "coredumpdirectory",
            "scoreboardfile",
            "lockfile",
        ],
        "the server needs no such file",
    ),
    (
        &["serveradmin", "serversignature", "servertokens", "extendedstatus", "contentdigest"],
        "error pages and `Server` name neither a person nor a version",
    ),
    (
        &[
            "startservers",
            "minspareservers",
            "maxspareservers",
            "serverlimit",
            "threadlimit",
            "threadsperchild",
            "maxrequestworkers",
            "maxclients",
            "maxconnectionsperchild",
            "maxrequestsperchild",
            "minsparethreads",
            "maxsparethreads",
            "asyncrequestworkerfactor",
            "listenbacklog",
            "threadstacksize",
        ],
        "workers are one for each processor, and connections cost no process",
    ),
    (
        &[
            "hostnamelookups",
            "usecanonicalname",
            "usecanonicalphysicalport",
            "namevirtualhost",
            "acceptfilter",
            "enablesendfile",
            "enablemmap",
            "sendbuffersize",
        ],
        "the server decides it by itself",
    ),
    (&["traceenable"], "TRACE gets 405"),
    (
        &[
            "addoutputfilterbytype",
            "deflatecompressionlevel",
            "brotlicompressionquality",
            "deflatefilternote",
            "deflatebuffersize",
            "browsermatch",
            "browsermatchnocase",
            "brotlifilternote",
            "filterdeclare",
            "filterprovider",
            "filterchain",
            "addencoding",
            "removeencoding",
            "deflateinflatelimitrequestbody",
        ],
        "text is compressed by default, and compressed files are sent as they are",
    ),
    (
        &[
            "typesconfig",
            "mimemagicfile",
            "addicon",
            "addiconbytype",
            "addiconbyencoding",
            "adddescription",
            "defaulticon",
            "indexoptions",
            "indexignore",
            "indexorderdefault",
            "indexstylesheet",
            "headername",
            "readmename",
            "indexheadinsert",
            "indexignorereset",
            "addalt",
            "addaltbytype",
        ],
        "media types and the page of a listing are built in",
    ),
    (
        &[
            "addlanguage",
            "languagepriority",
            "forcelanguagepriority",
            "addcharset",
            "removecharset",
            "defaultlanguage",
        ],
        "content is not negotiated by language, and text is in UTF-8",
    ),
    (
        &[
            "sslciphersuite",
            "sslhonorcipherorder",
            "sslcompression",
            "sslsessiontickets",
            "sslsessioncache",
            "sslsessioncachetimeout",
            "sslrandomseed",
            "sslcryptodevice",
            "sslpassphrasedialog",
            "sslinsecurerenegotiation",
            "sslopensslconfcmd",
            "sslstrictsnivhostcheck",
            "ssloptions",
            "sslusestapling",
            "sslstaplingcache",
            "sslstaplingrespondertimeout",
            "sslstaplingreturnrespondererrors",
            "sslverifydepth",
        ],
        "the suites and sessions are the safe ones of rustls; `ciphers` of `tls` names others",
    ),
    (
        &[
            "protocols",
            "protocolshonororder",
            "h2direct",
            "h2push",
            "h2upgrade",
            "h2earlyhints",
            "h2moderntlsonly",
            "h2windowsize",
            "h2maxsessionstreams",
            "h2minworkers",
            "h2maxworkers",
            "h2pushpriority",
        ],
        "HTTP/2 is on at every listener with TLS",
    ),
    (&["proxyrequests"], "the server is no forward proxy"),
    (
        &[
            "proxyvia",
            "proxyaddheaders",
            "proxyiobuffersize",
            "proxyreceivebuffersize",
            "proxymaxforwards",
            "proxybadheader",
            "proxystatus",
            "proxyfcgibackendtype",
            "proxyfcgisetenvif",
            "proxywebsocketfallbacktoproxyhttp",
            "proxyhctemplate",
            "proxywebsocketasync",
        ],
        "upstreams get `Via` and `X-Forwarded` fields, and their responses are streamed",
    ),
    (
        &[
            "requestreadtimeout",
            "limitrequestfieldsize",
            "limitrequestfields",
            "limitrequestline",
            "limitinternalrecursion",
            "httpprotocoloptions",
            "registerhttpmethod",
        ],
        "heads have limits of size and time: [server.http1]",
    ),
    (
        &["scriptsock", "scriptlog", "scriptlogbuffer", "scriptloglength", "cgidscripttimeout"],
        "the server starts programs by itself",
    ),
    (&["acceptpathinfo"], "files take no path after their name, and scripts do"),
    (
        &["logiotrackttfb", "bufferedlogs", "cookielog", "errorlogformat"],
        "the formats of the logs are fixed",
    ),
    (
        &["xbithack", "ssiundefinedecho", "ssitimeformat", "ssierrormsg"],
        "server-side includes depend on the media type",
    ),
    (
        &["rewritelog", "rewriteloglevel", "warning", "message"],
        "`dunlin check --explain` shows what applies to a URL",
    ),
    (&["checkspelling", "checkcaseonly"], "names are those of the files"),
    (
        &[
            "md_storedir",
            "mdcertificateagreement",
            "mdcontactemail",
            "mdprivatekeys",
            "mdrenewwindow",
            "mdmembers",
            "mdomain",
        ],
        "certificates of ACME are in the directory `state`",
    ),
];

/// Directives that are lost, with what a request sees.
const LOST: [(&[&str], &str); 14] = [
    (
        &["setenvif", "setenvifnocase"],
        "the variable is not set: scripts and conditions do not see it",
    ),
    (
        &["php_value", "php_flag", "php_admin_value", "php_admin_flag"],
        "PHP is configured in its own files: `php.ini`, `.user.ini` or the pool of PHP-FPM",
    ),
    (&["rewritemap"], "rules that use the map do not apply"),
    (
        &["substitute", "substitutemaxlinelength"],
        "texts in bodies are not replaced; `substitute` of a route replaces texts",
    ),
    (
        &[
            "addinputfilter",
            "setinputfilter",
            "action",
            "script",
            "removeinputfilter",
            "extfilterdefine",
        ],
        "bodies pass without this filter or action",
    ),
    (
        &["virtualdocumentroot", "virtualscriptalias", "virtualdocumentrootip"],
        "directories do not depend on the host",
    ),
    (&["userdir"], "directories of users are not published"),
    (
        &[
            "wsgiscriptalias",
            "wsgidaemonprocess",
            "wsgiprocessgroup",
            "wsgipythonpath",
            "wsgipythonhome",
            "wsgipassauthorization",
            "wsgiapplicationgroup",
            "wsgisocketprefix",
        ],
        "the application does not run: write `script = { kind = \"wsgi\", application = \"module:callable\" }`",
    ),
    (
        &[
            "passengerenabled",
            "passengerapproot",
            "passengerruby",
            "passengerpython",
            "passengerbaseuri",
        ],
        "the application does not run: start it by itself and write `proxy`",
    ),
    (
        &[
            "proxypassreversecookiedomain",
            "proxypassinterpolateenv",
            "proxyremote",
            "proxyblock",
            "proxydomain",
            "proxyhtmlenable",
            "proxyhtmlurlmap",
            "proxyhtmlextended",
        ],
        "what upstreams send is not changed",
    ),
    (
        &["secrulengine", "secruleengine", "secrule", "secaction", "secrequestbodyaccess"],
        "requests are not inspected",
    ),
    (
        &[
            "cacheenable",
            "cacheroot",
            "cachedisable",
            "cachequickhandler",
            "cachedefaultexpire",
            "cachemaxexpire",
            "cachelock",
            "cacheignoreheaders",
        ],
        "responses are not cached; `cache = { responses = true }` of a route does",
    ),
    (
        &["limitxmlrequestbody", "davlockdb", "davmintimeout", "davdepthinfinity"],
        "locks and bodies of WebDAV are limited by default",
    ),
    (
        &[
            "modemstd",
            "cookietracking",
            "cookiename",
            "authdigestdomain",
            "authdigestprovider",
            "authgroupfile",
            "authldapurl",
            "authbasicauthoritative",
            "sessioncookiename",
            "session",
        ],
        "sessions, groups and other ways of authentication have no counterpart",
    ),
];

/// Judges each directive that the conversion has not.
pub(super) fn complete(all: &[Directive], report: &mut Report) {
    for directive in all {
        let is_judged = report.has(directive);
        let name = directive.name.to_ascii_lowercase();
        let find = |table: &[(&[&str], &'static str)]| {
            table.iter().find(|(names, _)| names.contains(&name.as_str())).map(|(_, text)| *text)
        };
        let is_container =
            ["IfModule", "IfDefine", "IfVersion", "IfFile", "IfDirective", "IfSection"]
                .iter()
                .any(|name| is(directive, name));
        match (find(&NOT_NEEDED), find(&LOST)) {
            _ if is_judged => {}
            _ if is_container => {
                report.not_needed(directive, "its condition holds: what is in it stands here");
            }
            _ if matches!(
                name.as_str(),
                "include" | "includeoptional" | "define" | "undefine" | "serverroot"
            ) =>
            {
                report.carried(directive);
            }
            _ if matches!(
                name.as_str(),
                "allowoverride" | "allowoverridelist" | "accessfilename"
            ) =>
            {
                report.not_needed(
                    directive,
                    "`.htaccess` files that apply are read now, not on each request",
                );
            }
            (Some(why), _) => report.not_needed(directive, why),
            (_, Some(what)) => report.lost(directive, what),
            _ if READ.contains(&name.as_str()) => {
                report
                    .not_needed(directive, "it applies nowhere: nothing that is converted uses it");
            }
            _ => report.lost(directive, "the directive has no counterpart"),
        }
        complete(directive.children(), report);
    }
}

/// Judges what stands in conditions that do not hold.
pub(super) fn skipped(all: &[Directive], report: &mut Report) {
    for directive in all {
        report.not_needed(
            directive,
            "its condition does not hold: the modules of Apache count as loaded",
        );
        skipped(directive.children(), report);
    }
}
