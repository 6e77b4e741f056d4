//! The configuration for what was found.

use super::find::{Application, Found, Php, Python};

/// Where it is served.
pub(super) const ADDRESS: &str = "127.0.0.1:8080";

/// Returns the text of the file.
pub(super) fn configuration(found: &Found) -> String {
    let Found { application, root, has_index, assets, has_cgi } = found;
    let mut text = format!(
        "# For {what}. `dunlin check` checks this file, `dunlin reload` applies changes to it.\n\
         \n\
         [server]\n\
         access_log = \"-\"                 # to standard output; or the path of a file\n\
         admin = \".dunlin.sock\"           # for `dunlin top`, `dunlin watch` and `dunlin reload`\n\
         # user = \"www-data\"              # if root starts the server: it drops to this user\n\
         \n\
         [[listen]]\n\
         address = \"{ADDRESS}\"       # \":80\" for the port 80 of all addresses of this machine\n\
         \n\
         [[site]]\n\
         # For HTTPS on the ports 80 and 443, remove the table [[listen]] and write:\n\
         # host = \"example.com\"           # a name that resolves to this machine\n\
         # tls = {{ acme = {{ contact = \"you@example.com\" }} }}\n\
         {root:<33}# the directory of public files\n",
        what = found.describe(),
        root = format!("root = {}", quoted(root)),
    );
    text += &match application {
        Application::Files if *has_index => {
            "listing = false                 # true lists directories without an index file\n\
             # error_pages = { 404 = \"/404.html\" }\n"
                .to_owned()
        }
        Application::Files => {
            "listing = true                   # lists directories without an index file\n"
                .to_owned()
        }
        Application::Php(php) => of_php(php, root),
        Application::Python(python) => of_python(python),
        Application::Perl(file) => format!(
            "script = {{ kind = \"psgi\", application = {}, directory = \".\", processes = 2 }}\n",
            quoted(file)
        ),
        Application::Node { port } => of_node(*port, root),
    };
    if let Some(assets) = assets {
        text += &format!(
            "\n[[site.route]]                   # files that are sent without the application\n\
             path = \"/{assets}/*\"\n\
             root = {}\n\
             # expires = \"1h\"\n",
            quoted(root)
        );
    }
    if *has_cgi {
        text += "\n[[site.route]]\n\
                 path = \"/cgi-bin/*\"\n\
                 script = { kind = \"cgi\", directory = \"cgi-bin\" }\n";
    }
    text
}

fn of_php(php: &Php, root: &str) -> String {
    let root = quoted(root);
    let runs = match &php.socket {
        Some(socket) => format!("connect = [{}]", quoted(&format!("unix:{socket}"))),
        None => "command = [\"php-cgi\"]".to_owned(),
    };
    let script = format!("script = {{ kind = \"fastcgi\", {runs}, root = {root} }}\n");
    match php.has_front {
        true => format!(
            "{script}\
             try = [\"{{path}}\", \"{{path}}/\", \"/index.php?{{query}}\"]   # what is no file is a page of index.php\n\
             body_size = \"20MiB\"              # of uploads, at most\n"
        ),
        false => format!("\n[[site.route]]\npath = \"*.php\"\n{script}"),
    }
}

fn of_python(python: &Python) -> String {
    let interpreter = match &python.interpreter {
        Some(interpreter) => format!(", interpreter = {}", quoted(interpreter)),
        None => String::new(),
    };
    format!(
        "script = {{ kind = {}, application = {}, directory = \".\"{interpreter}, processes = 2 }}\n\
         body_size = \"20MiB\"              # of uploads, at most\n",
        quoted(python.kind),
        quoted(&python.object)
    )
}

fn of_node(port: u16, root: &str) -> String {
    // In the directory of the application itself, files are its source.
    let files = if root == "." {
        ""
    } else {
        "try = [\"{path}\", \"=proxy\"]       # files first, then the application\n"
    };
    format!(
        "proxy = \"http://127.0.0.1:{port}\"\n\
         {files}\
         body_size = \"20MiB\"              # of uploads, at most\n"
    )
}

/// Returns a text of TOML, whose basic strings have the form of JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
