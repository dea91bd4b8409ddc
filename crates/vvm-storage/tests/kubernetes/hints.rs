//! Watches as hints.

use super::{
    hint_suite::{Scene, hints_suite},
    kubectl, url,
};

hints_suite!(url());

#[tokio::test(flavor = "multi_thread")]
async fn flood_and_lies_harm_nothing() {
    let scene = Scene::on(&url()).await;
    let lease = format!("{}.slots", scene.name);
    let lies = async || {
        for lie in 0..20 {
            kubectl(&["annotate", "--overwrite", "lease", &lease, &format!("lie={lie}")]);
        }
    };
    scene.is_not_harmed_by(lies).await;
}
